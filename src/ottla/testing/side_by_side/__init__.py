"""The same conversation with Apache Kafka and with us: what is asked of both must be answered alike.

    conversations = Conversations(Side)

    @conversations.add
    def a_topic_that_is_not_there(side: Side) -> None:
        side.ask(metadata(side.name("never")), 12)

    with both_brokers(directory) as brokers:
        conversations.play("a topic that is not there", brokers)  # AssertionError says where they disagree

`brokers` starts the two, `side` talks to one of them (`groups`, `transactions`: with more words), `transcript` writes
the answers down so that they can be compared, `conversations` plays and compares.
"""

from ottla.testing.side_by_side.brokers import Brokers, both_brokers
from ottla.testing.side_by_side.conversations import Conversations
from ottla.testing.side_by_side.groups import GroupSide
from ottla.testing.side_by_side.side import Side
from ottla.testing.side_by_side.transactions import TransactionSide

__all__ = ["Brokers", "Conversations", "GroupSide", "Side", "TransactionSide", "both_brokers"]
