"""Random histories of requests, played to Apache Kafka and to us at the same time: every answer must be the same.

    with both_brokers(directory) as brokers, Fuzzer(brokers) as fuzzer:
        fuzzer.run(seeds, seconds=60)  # AssertionError: a short history, what both said, how to see it again

`drawing` makes a history of a seed, with the values of `values` and the record batches of `batches`; what only a broker
can know (ids, epochs) stands in it as a reference (`references`), which each side fills in from its own answers.
`playing` sends every step to both brokers and compares the answers (`comparing`), but for the differences of `allowed`,
each of which says why. `shrinking` makes a history that shows a difference short; `fuzzer` runs and reports.
"""

from ottla.testing.differential.fuzzer import Fuzzer

__all__ = ["Fuzzer"]
