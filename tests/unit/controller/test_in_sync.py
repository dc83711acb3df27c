"""What a controller answers to a leader that asks for other in-sync replicas, in the order of Kafka's checks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.cluster.image import PartitionState
from ottla.controller.in_sync import IsrRequest, decide
from ottla.errors import ErrorCode

ELIGIBLE = (1, 2, 3)
KNOWN = PartitionState((1, 2, 3, 4), leader=1, leader_epoch=5, isr=(1, 2), version=7)
RECOVERING = replace(KNOWN, isr=(1,), is_recovering=True)
ASKED = IsrRequest(leader_epoch=5, version=7, isr=(1, 2, 3))


def test_a_change_is_the_next_version_of_the_same_leadership() -> None:
    assert decide(KNOWN, ASKED, ELIGIBLE) == replace(KNOWN, isr=(1, 2, 3), version=8)
    assert decide(KNOWN, replace(ASKED, isr=(1,)), ELIGIBLE) == replace(KNOWN, isr=(1,), version=8)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (replace(ASKED, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (replace(ASKED, version=8), ErrorCode.NOT_CONTROLLER),
        (replace(ASKED, leader_epoch=4, version=8), ErrorCode.NOT_CONTROLLER),
        (replace(ASKED, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(ASKED, leader_epoch=4, isr=KNOWN.isr), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(ASKED, version=6), ErrorCode.INVALID_UPDATE_VERSION),
        (replace(ASKED, version=6, isr=(9,)), ErrorCode.INVALID_UPDATE_VERSION),
        (replace(ASKED, is_recovering=True), ErrorCode.INVALID_REQUEST),
        (replace(ASKED, isr=(1,), is_recovering=True), ErrorCode.INVALID_REQUEST),
        (replace(ASKED, isr=(1, 9), is_recovering=True), ErrorCode.INVALID_REQUEST),
        (replace(ASKED, isr=(1, 2, 4)), ErrorCode.INELIGIBLE_REPLICA),
        (replace(ASKED, isr=(1, 2, 9)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_cannot_be_is_refused(request_: IsrRequest, code: ErrorCode) -> None:
    assert decide(KNOWN, request_, ELIGIBLE) == code


@pytest.mark.parametrize("version", [6, 7])
def test_what_is_so_already_is_answered_though_an_earlier_state_is_named(version: int) -> None:
    """The leader asks again because the first answer was lost."""
    assert decide(KNOWN, replace(ASKED, version=version, isr=KNOWN.isr), ELIGIBLE) is KNOWN


def test_a_leader_that_was_elected_uncleanly_recovers_with_its_next_change() -> None:
    recovered = IsrRequest(leader_epoch=5, version=7, isr=(1,))
    assert decide(RECOVERING, recovered, ELIGIBLE) == replace(RECOVERING, is_recovering=False, version=8)
    together = replace(recovered, isr=(1, 2))
    assert decide(RECOVERING, together, ELIGIBLE) == replace(RECOVERING, isr=(1, 2), is_recovering=False, version=8)
    still = replace(together, is_recovering=True)
    assert decide(RECOVERING, still, ELIGIBLE) == ErrorCode.INVALID_REQUEST
