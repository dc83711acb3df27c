"""The user data of the sticky assignor: what a member had, since it joins with empty hands."""

from ottla.protocol.messages.embedded import TopicPartition
from ottla.protocol.schema import message, wire
from ottla.protocol.wire import Int32


@message(versions=(0, 1))
class StickyUserData:
    previous_assignment: list[TopicPartition]
    generation: Int32 = wire(since=1, default=-1, ignorable=True)
