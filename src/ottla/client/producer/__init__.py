"""The producer, part by part.

| part | what it owns |
|---|---|
| `producer.py` | the asyncio front: checks, interceptors, serializers, and who waits for room |
| `blocking.py` | the same for callers without a loop |
| `partitioners.py` | which partition a record goes to |
| `accumulator.py` | the batches that are not acknowledged, by partition: readiness and drain |
| `memory.py` | the bytes that records in flight may take ||
| `batch.py`, `deliveries.py` | a batch on its way; what became of it, and the futures of its records |
| `sender.py` | requests, connections, retries, timeouts |
| `sequences.py` | the numbers by which brokers know batches again |
| `transactions.py` | the state of a transaction and the requests of its coordinator |
| `interceptors.py` | hooks around a record |

What decides is plain: values and `now` in, values out. Only `sender`, `transactions` and the fronts wait for anything.
"""
