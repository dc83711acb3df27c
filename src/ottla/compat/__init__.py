"""The names, arguments and defaults of other Python clients, on the clients of Ottla: to migrate one import at a time.

| in place of | import |
|---|---|
| `kafka` (kafka-python) | `ottla.compat.kafka_python` |
| `aiokafka` | `ottla.compat.aiokafka` |
| `confluent_kafka` | `ottla.compat.confluent` |

The common surface is there. What is not says so when it is used, and names what to use.
"""
