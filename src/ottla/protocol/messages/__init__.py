"""Every message that a broker's listener takes, that brokers exchange, or that is stored; grouped by noun.

Each class is its own schema (see `ottla.protocol.schema`). Versions run from the oldest of Kafka 3.9 to the
newest of 4.3. Not here, because nothing of Ottla speaks them: what only KRaft controllers exchange (Vote,
BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, BrokerRegistration, BrokerHeartbeat, ControllerRegistration,
AssignReplicasToDirs, UpdateRaftVoter, Envelope), most records of the metadata log and of its snapshots, those
of tiered storage, and the user data of Kafka Streams' own assignor. Version 0 of API 74 was once called
ListClientMetricsResources; its bytes are those of ListConfigResources.
"""
