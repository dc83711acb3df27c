"""The same requests to Apache Kafka 4.3 and to us: the same answers, up to ids, times and words.

A file holds the conversations about one subject. Each is played to both brokers over raw connections and written down;
the two transcripts must be equal (`ottla.testing.side_by_side`). Where we differ on purpose, the conversation says so
beside the line.
"""
