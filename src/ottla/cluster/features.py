"""The features of a cluster: versions of its behaviour that a client may rely on with every broker. Pure.

A broker supports a range of each. What holds for the whole cluster is the highest version that all live brokers have:
beside Kafka 3.9, which registers none of them, a client must not use transactions of version 2, because the next
coordinator may not know them; nor does a group begin to use the protocol of KIP-848, which that one would not serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

GROUP_VERSION: Final = "group.version"  # 1: groups of KIP-848
# Only what is announced here may be used by clients; the rest of Kafka's features comes with what they stand for.
SUPPORTED_FEATURES: Final = {"metadata.version": (7, 30), GROUP_VERSION: (0, 1), "transaction.version": (0, 2)}
FINALIZED_FEATURES: Final = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
# In ZooKeeper there is no metadata log whose version could differ: brokers do not register it.
OF_ONE_BROKER: Final = frozenset({"metadata.version"})


def registered_features() -> dict[str, dict[str, int]]:
    """What a broker registers, in Kafka's form; a lowest version of 0 is the absence of the feature."""
    return {
        name: {"min_version": max(1, lowest), "max_version": highest}
        for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        if name not in OF_ONE_BROKER
    }


def common_features(registered: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The version of each feature that all brokers have, by the highest that each of them registered."""
    brokers = list(registered)
    return {
        name: level
        for name, highest in FINALIZED_FEATURES.items()
        if (level := highest if name in OF_ONE_BROKER else min((*(each.get(name, 0) for each in brokers), highest))) > 0
    }
