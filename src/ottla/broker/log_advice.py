"""What to do about the lines of a broker's log: by logger, then by message, with … in place of every value.

`docs/reference/log-messages.md` is made of it. A WARNING or ERROR without advice fails a test: write it with the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_DISK = "Look at the disk: `dmesg`, SMART, free space, permissions of the directory."
_DESCRIPTORS = (
    "The process has too few file descriptors: raise its hard limit (`LimitNOFILE`, `ulimit -Hn`) and restart."
)
_RESTART_OFFLINE = (
    f"{_DISK} When it works again, or was replaced, restart the broker: directories come back at a start."
)
_REBUILT = "Nothing: it is made again from the log. If it is repeated without a crash before it, look at the disk."
_RETRIED = "Nothing if it stops by itself: it is tried again. If it goes on, the message names what is missing."
_STORE = (
    "Nothing if it stops by itself: it is tried again. Otherwise see that ZooKeeper has a majority and can be reached."
)
_FOREIGN = (
    "Brokers with `zookeeper.set.acl` and others, or with different users, share this ZooKeeper. Give the node an ACL "
    "that this broker's user meets; see the page about security."
)
_SETTING = "Correct or delete the setting with `ottla configs alter`; until then it is as if it were not set."
_BUG = "A bug: report it with the traceback that follows. The broker goes on; restart it if what failed is missed."
_CORRUPT = (
    "The file is damaged. With other replicas: stop the broker, move the partition's directory away, start it again; "
    "it is fetched again. Without: restore a backup, or delete the "
    "records up to and with the damage (`ottla topics delete-records`)."
)

ADVICE: Final[Mapping[str, Mapping[str, str]]] = {
    "ottla.broker.acl_store": {
        "…: only super users are served until that is repaired": "An ACL in the metadata cannot be read: as a super "
        "user, delete it and create it again, or correct its node in ZooKeeper.",
    },
    "ottla.broker.broker": {
        "…": "The compiled core is missing, and the broker is several times slower: install a wheel for this Python, "
        "or a C compiler and the headers of Python, then Ottla again.",
        "a codec is slow: …": "Nothing if few clients use that codec: what is stored as it comes is not compressed "
        "again. Otherwise install the library that is named.",
        "… does not belong to a topic of this cluster; it is ignored": "The directory is left from a topic that was "
        "deleted, or was copied here. Move it away once its records are not needed.",
    },
    "ottla.broker.cluster_features": {
        "…; the cluster uses no features while this broker is registered": "The registration of a broker in ZooKeeper "
        "cannot be read: restart that broker, and see that nothing else writes there.",
    },
    "ottla.broker.cluster_member": {
        "the controller does not answer; this broker keeps its leaderships until it has stopped": "Leaders change only "
        "once this broker is gone: clients wait for seconds. See that a broker is the controller before the next stop.",
        "… partitions are still led here: …": "No other in-sync replica can lead them. See which brokers are down or "
        "behind, and let them catch up before you stop more brokers.",
        "the broker stops before all its leaderships have been handed over": "As above: the partitions have a leader "
        "again when another in-sync replica is there.",
    },
    "ottla.broker.cluster_metadata": {
        "the loss of a log directory cannot be reported yet: …": _STORE,
    },
    "ottla.broker.compaction": {
        "… could not be compacted: …; retry in … s": "The partition grows until this succeeds. The message names the "
        "file: free space for a copy of the segments, or, if it is damaged, restore it from a replica.",
    },
    "ottla.broker.config_changes": {
        "…; this notification is skipped": "Something wrote a notification that cannot be read to ZooKeeper. Make the "
        "change of settings again with `ottla configs alter`.",
        "…: …; it has no effect": _SETTING,
    },
    "ottla.broker.control_channel": {
        "broker … has no listener … (inter.broker.listener.name) and cannot be reached": "Give all brokers the same "
        "`inter.broker.listener.name`, and a listener of that name.",
        "what broker … answered to … could not be taken in": _BUG,
        "… to broker … is not sent: …": "The broker goes on without it. Look in ZooKeeper for the value "
        "that the message names; report it if it is not there.",
        "… to broker … failed: …": "The controller could not give that broker its roles, and tries again. See that the "
        "broker runs; report the message if it does.",
    },
    "ottla.broker.control_requests": {
        "…: its leader, broker …, is not known yet": "Nothing if replication begins within seconds. Otherwise that "
        "broker is down, or has no listener between brokers.",
        "controller … sends no topic ids, so this broker neither leads nor follows: set "
        "inter.broker.protocol.version to 2.8 or later on the brokers of Kafka": "Do that: Kafka "
        "sends topic ids from 2.8 on.",
        "… is no longer assigned to this broker and is deleted": "Nothing: the partition was moved, or its topic "
        "deleted, while this broker was down or cut off.",
        "… topics were deleted while nobody could say so to us: …": "Nothing: this broker no longer shows them.",
    },
    "ottla.broker.controller": {
        "…; its settings have no effect until it is written again": "Set one of them again, by `ottla configs`: that "
        "writes the whole node.",
        "the mark for the deletion of … cannot be removed yet: …": "Nothing: the topic is gone, and the next start "
        "removes the mark. The message says why the metadata could not be written.",
        "the loss of replicas could not be recorded: …": _RESTART_OFFLINE,
        "… notifications of changed settings cannot be removed yet: …": _RETRIED,
        "settings of Kafka without effect here: …": "Nothing, or take them out: [settings](settings.md) has those that "
        "have an effect.",
        "…: …; it has no effect": _SETTING,
    },
    "ottla.broker.coordinators": {
        "…-… cannot be loaded: …": "The groups or transactions of that partition are not served here: its log is "
        "offline. Look for the earlier error of its directory.",
        "… cannot be loaded from offset … on, and its groups or transactions are not served: …; "
        "`ottla dump-log` shows its contents": f"{_CORRUPT} With a traceback: report it.",
    },
    "ottla.broker.directory_moves": {
        "… cannot be moved: …": "The partition stays where it is. Repair what the message names (space, a disk), then "
        "move it again.",
        "…; the move of … continues later": _DESCRIPTORS,
        "…; the deletion of … is continued later": _DESCRIPTORS,
    },
    "ottla.broker.fetchers": {
        "fetching from broker … failed: …": "It is tried again. With a traceback: report it. Otherwise see that the "
        "versions and the security settings between the two brokers agree.",
        "…: the leader has offsets … to …, this replica ends at …; continuing at …": "Expected after a long time "
        "offline, or an unclean election. If neither was, find out which broker lost records.",
    },
    "ottla.broker.followed_partition": {
        "… cannot be followed: …": "This replica is no longer in sync: look for the error of its log directory. "
        f"{_RESTART_OFFLINE}",
        "…: …; will retry": _RETRIED,
        "…: its records cannot be taken; will retry": "Report it, with the traceback. Others are not held up.",
    },
    "ottla.broker.follower_truncation": {
        "…: no leader epochs are known of its records; truncating to the high watermark, from … to …": "The leader "
        "has, or this replica had, an old or damaged log. What is cut off is fetched again, if the leader has it.",
    },
    "ottla.controller.term": {
        "the state of … stays as it is: …": _FOREIGN,
        "…; the partition stays as it is until that is repaired": "Somebody deleted it, or wrote what is not Kafka's "
        "JSON: repair the node of the partition's state.",
    },
    "ottla.controller.topics": {
        "…; the topic is left as it is until that is repaired": "Somebody wrote what is not Kafka's JSON: repair the "
        "node, or write it again.",
    },
    "ottla.broker.handlers.find_coordinator": {
        "… cannot be created: …": "Groups or transactions do not work until it is. Most often there are fewer brokers "
        "than `offsets.topic.replication.factor` or `transaction.state.log.replication.factor`.",
    },
    "ottla.broker.jwks": {
        "the keys of OAUTHBEARER cannot be fetched: …; those that are known hold": "See that the address of "
        "`sasl.oauthbearer.jwks.endpoint.url` can be reached from here: tokens that are signed with new "
        "keys are refused.",
    },
    "ottla.broker.marker_delivery": {
        "…: the outcome of transactions is not known: …": _RETRIED,
        "the marker of … was not written to …: …": "Readers of committed records wait at that partition until it is. "
        "It is tried again; see that the partition has a leader and enough in-sync replicas.",
    },
    "ottla.broker.membership": {
        "an earlier run of this broker is still registered; waiting for the end of its session": "Nothing: after a "
        "kill it takes `zookeeper.session.timeout.ms`. If it does not end, two processes have the same `broker.id`.",
    },
    "ottla.broker.partition": {
        "…: committed records from … to … are truncated: the leader does not have them": "Acknowledged records are "
        "lost: an unclean election, or a leader that came back with an empty disk. Save this broker's directory if "
        "they matter, before retention deletes more.",
        "…: …; the client tries again": _DESCRIPTORS,
        "…: …; what is damaged is not served": _CORRUPT,
    },
    "ottla.broker.producer_ids": {
        "producer ids cannot be assigned now: …": f"New idempotent producers wait. {_STORE}",
    },
    "ottla.broker.quota_store": {
        "… is not an entity that may have quotas": "Delete the node from ZooKeeper: it was not written by Kafka's "
        "tools or ours.",
        "…: …; it limits nobody": "Set the quota again with `ottla quotas set`.",
    },
    "ottla.broker.replicas": {
        "…; … is not served until that changes": _DESCRIPTORS,
        "…; … is offline": _RESTART_OFFLINE,
        "…; … is not served until it is asked for again": _DESCRIPTORS,
        "…; the deletion of logs in … is continued later": _DESCRIPTORS,
        "…; the log directory stays online": "One file could not be written or is damaged: the message names it. "
        "It is written again; look at the disk if it is repeated.",
    },
    "ottla.broker.stored_secrets": {
        "… of broker … …; it has no effect": "Set `password.encoder.secret` (or, after a change of it, "
        "`password.encoder.old.secret`) to the one with which it was stored, or store the password again.",
    },
    "ottla.broker.strays": {
        "…; … stays": "Somebody wrote what is not Kafka's JSON: repair the node, or write it again.",
        "…: is of a topic with the id …; … stays": "An old tool has written the node without the topic's id, or "
        "somebody has changed it. Write the id that is in `partition.metadata` into the node again; or, if the replica "
        "is of an earlier topic, stop the broker and move its directory away.",
    },
    "ottla.broker.token_store": {
        "…; nobody can log in by this token": "The stored token is damaged, or was made with another "
        "`delegation.token.secret.key`: give all brokers the same key, and create the token again.",
    },
    "ottla.broker.transaction_coordinator": {
        "there is a marker of producer … in …, which has no transactions": "Nothing: it is ignored. Somebody wrote to "
        "the internal topic; ACLs can forbid that.",
    },
    "ottla.controller.brokers": {
        "…; broker … is taken for dead": "Start that broker again: it registers again.",
        "…; it is dropped": "Nothing, if no broker wrote it. Else see its version.",
        "broker … has lost … replicas with a log directory": "Others lead what they can. Look at the log "
        "of that broker.",
    },
    "ottla.controller.controller": {
        "this broker cannot be the controller: …": _FOREIGN,
        "…; it is dropped": "Ask again, with JSON as Kafka's tools write it.",
        "the controller failed in epoch … and resigns": "Another broker, or this one, is elected and reads everything "
        "again. Report it with the traceback that follows.",
        "… is not moved: …": "The reassignment was refused for the reason that the message has: request it again.",
    },
    "ottla.controller.deletions": {
        "broker … could not delete …: …": "It is tried again when brokers or replicas change. Look at the log of that "
        "broker for the error of its disk.",
    },
    "ottla.controller.elections": {
        "…: unclean election: broker … leads; records that only … had are lost": "Somebody allowed it "
        "(`unclean.leader.election.enable`, or an election by hand). Tell the owners of the topic.",
    },
    "ottla.net.connection": {
        "…: …; the connection is closed": "A client broke the protocol, or its network failed. From one address again "
        "and again: it speaks TLS to a plain listener, or the other way round, or is not a Kafka client.",
        "…: a request failed; the connection is closed": "A bug: report it with the traceback that follows. The client "
        "connects again.",
    },
    "ottla.net.hang_ups": {
        "a connection cannot be watched: …; it is noticed late if its peer hangs up": _DESCRIPTORS,
    },
    "ottla.net.server": {
        "…: cannot accept connections: …; retrying": _DESCRIPTORS,
        "…: connection from … refused: it makes them too fast (its quota)": "A client connects in a loop: repair it, "
        "or raise the quota (`connection_creation_rate`, `max.connection.creation.rate`).",
        "…: connection from … refused: …": "A limit was reached: `max.connections`, `max.connections.per.ip` or file "
        "descriptors. Find the client that opens so many, or raise the limit.",
        "…: closed to make room for a broker (max.connections)": "Raise `max.connections`: connections of brokers push "
        "those of clients out.",
        "… connections did not finish in … s; closed": "Nothing: the broker stopped with requests that waited, and "
        "clients repeat them elsewhere.",
    },
    "ottla.runtime.carried_out": {
        "failed after the client that asked for it had hung up": _BUG,
    },
    "ottla.runtime.machine": {
        "…: … records were not written: …": "Clients got an error and try again. If it goes on, the partition has no "
        "leader, too few in-sync replicas, or a failing disk: the message says which.",
    },
    "ottla.runtime.tasks": {
        "the background task … failed; it continues": _BUG,
        "the background task … failed; next try in … s: …": "Repair what the message names: a broker with the same "
        "id, a node of ZooKeeper that cannot be read. With a traceback it is a bug: report it.",
        "the background task … failed": _BUG,
    },
    "ottla.storage.clean_mark": {
        "…: cannot be parsed (…)": "Nothing: the logs are checked as after a crash, which takes longer.",
        "…: does not match the logs; they are checked as after a crash": "Expected if files were copied or restored "
        "while the broker was stopped. Otherwise find out who writes to its directories.",
    },
    "ottla.storage.directory_checkpoints": {
        "…; it is rebuilt": _REBUILT,
    },
    "ottla.storage.log_moves": {
        "…; this copy is dropped": "Nothing: the partition is served from its old directory, and the "
        "move begins again.",
        "… is in two log directories; the one in … is used, the other is kept as …": "Delete the copy that was kept, "
        "once readers have what they need.",
    },
    "ottla.storage.logs": {
        "…: not the directory of a partition; ignored": "Move it out of the log directory.",
        "…; this partition is not served": _CORRUPT,
        "…; … is not marked as cleanly closed: the next start checks it": _DESCRIPTORS,
        "…; the log directory … is offline": _RESTART_OFFLINE,
        "…; the log is treated as one without a topic id": _REBUILT,
        "… belongs to …, not to …; it is kept as …": "The log of an earlier topic of the same name. Delete what was "
        "kept, once its records are not needed.",
    },
    "ottla.storage.producer_replay": {
        "the marker of producer … at offset … is passed over: …": "Some client wrote a control record that ends no "
        "transaction. If the producer has one open there, it stays so: see `ottla transactions`.",
        "…; the state of its producers is not known from there on": _CORRUPT,
        "…; using an earlier snapshot or the log itself": _REBUILT,
    },
    "ottla.storage.recovery": {
        "… ends at …: it was never flushed up to …; checked from its start": "The log is shorter than what was "
        "flushed: files were lost or an old copy was restored. In a cluster the leader fills it up again.",
        "…; the leader epochs are read from the log again": _REBUILT,
        "…; the segment is recovered although the shutdown was clean": "The file was changed or damaged after the last "
        "stop: look at the disk, and at who writes to the directory.",
        "…: does not match its segment; rebuilt": _REBUILT,
        "…; the aborted transactions are read from the log again": _REBUILT,
        "…; the … bytes from … on are refused to readers: restore the file from a replica, or delete its records": (
            _CORRUPT
        ),
        "…: does not fit the log; the leader epochs are read from it again": _REBUILT,
        "…: …; cut at byte …, … bytes dropped": "After a crash: nothing, no acknowledged record was in it unless the "
        "machine lost power and no other replica had it. After a clean stop: look at the disk.",
        "…: dropped, … bytes: …": "What follows a torn segment cannot be used. In a cluster it is fetched again; "
        "without replicas, restore a backup if the records matter.",
        "… ends at …: its start cannot be …": _REBUILT,
    },
    "ottla.storage.segment": {
        "…: an index does not match its segment; rebuilt from the batches": _REBUILT,
    },
    "ottla.store.embedded": {
        "the metadata journal keeps growing because it cannot be rewritten: …": _DISK,
        "the metadata journal is not marked as closed; nothing is lost: …": _DISK,
    },
    "ottla.store.journal": {
        "…: a write was torn by a crash; cut off at byte …": "Nothing: the change was never answered.",
        "…; it is rewritten with the next commit": _DISK,
    },
}
