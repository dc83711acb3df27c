"""Every API x every right that is missing: the same codes as Apache Kafka's, and the same silence about what exists.

Each user lacks one right, or has only one (`ottla.testing.side_by_side.rights`). Where the table of rights of Kafka is
at hand, it is also checked that none of its checks was left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.security.acls import Operation, Resource
from ottla.testing.side_by_side import Brokers
from ottla.testing.side_by_side.rights import EVERYTHING, NOTHING, RIGHTS, Right, only, without
from ottla.testing.side_by_side.rights_play import Played, announced, play, prepare
from ottla.testing.side_by_side.transcript import differences

FACTS = Path(__file__).parents[4] / "shared" / "protocol" / "security" / "authorization.json"
LACKING_ONE = [NOTHING, EVERYTHING, *map(without, RIGHTS)]
PRODUCE_KEY = 0
# Checks that a client's listener does not have, or that no ACL is for.
ELSEWHERE = {
    (10, "CLUSTER", "CLUSTER_ACTION"): "of share groups, which are not served",
    (44, "CLUSTER", "CLUSTER_ACTION"): "of a controller's listener",
    (60, "CLUSTER", "ALTER"): "of a controller's listener",
}


def play_both(brokers: Brokers, users: Sequence[str]) -> dict[str, tuple[Played, Played]]:
    """What each user was answered by Kafka, and by us."""
    theirs, ours = announced(brokers.kafka), announced(brokers.ours)
    served = {
        key: range(max(theirs[key].start, ours[key].start), min(theirs[key].stop, ours[key].stop))
        for key in theirs.keys() & ours.keys()
    }

    def play_all(bootstrap_servers: str) -> dict[str, Played]:
        everybody = prepare(bootstrap_servers, users)
        return {names.user: play(bootstrap_servers, names, served) for names in everybody}

    with ThreadPoolExecutor() as threads:
        kafka, own = threads.map(play_all, (brokers.kafka, brokers.ours))
    return {user: (kafka[user], own[user]) for user in users}


def assert_same(played: dict[str, tuple[Played, Played]]) -> None:
    found = [
        f"{user}, {theirs.question}: {difference}"
        for user, (kafka, own) in played.items()
        for theirs, ours in zip(kafka.lines, own.lines, strict=True)
        for difference in differences(theirs.answer, ours.answer)
    ]
    assert not found, "\n".join(found[:50])


def test_whoever_lacks_one_right_is_answered_as_by_kafka(secured: Brokers) -> None:
    played = play_both(secured, LACKING_ONE)
    assert_same(played)
    if FACTS.exists():
        assert_all_checked({user: own.codes for user, (_, own) in played.items()})


@pytest.mark.long
def test_whoever_has_only_one_right_is_answered_as_by_kafka(secured: Brokers) -> None:
    assert_same(play_both(secured, [*map(only, RIGHTS)]))


def assert_all_checked(codes: dict[str, dict[int, set[int]]]) -> None:
    """Every check of the table was failed by whoever lacks its right; and by nobody who has them all."""
    apis: list[dict[str, Any]] = json.loads(FACTS.read_text())["apis"]
    missed = []
    for api in apis:
        key = api["api_key"]
        if key not in codes[NOTHING]:
            continue  # not served by both
        for check in api["checks"]:
            what = (key, check["resource_type"], check["operation"])
            if check["error_code"] is None or what in ELSEWHERE or check["resource_type"] not in Resource.__members__:
                continue
            right = Right(Resource[check["resource_type"]], Operation[check["operation"].split(" ")[0]])
            has_alternative = any(one.get("alternative_to") for one in api["checks"])
            user = NOTHING if has_alternative else without(right)
            if check["error_code"] not in codes[user][key]:
                missed.append(f"{api['name']}: {user} got {sorted(codes[user][key])}, and not {check['error_code']}")
            elif check["error_code"] in codes[EVERYTHING][key] and key != PRODUCE_KEY:  # nobody has a right on no id
                missed.append(f"{api['name']}: {EVERYTHING} got {check['error_code']}")
    assert not missed, "\n".join(missed)
