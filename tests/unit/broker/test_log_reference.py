"""The index of messages: every line of the broker's log is in it, and what to do about those that warn."""

from pathlib import Path

from ottla.broker.log_advice import ADVICE
from ottla.broker.log_reference import log_messages, messages

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "log-messages.md"


def test_every_warning_and_error_has_advice_and_no_advice_is_left_over() -> None:
    warned = {(one.logger, one.text) for one in messages() if one.level != "INFO"}
    advised = {(logger, text) for logger, of_logger in ADVICE.items() for text in of_logger}
    assert warned - advised == set(), "say in broker/log_advice.py what to do about it"
    assert advised - warned == set(), "nothing writes these any more"


def test_lines_are_found_however_they_are_written() -> None:
    found = set(messages())
    assert ("INFO", "ottla.broker.slow_requests") in {(one.level, one.logger) for one in found}
    assert ("INFO", "kafka.authorizer.logger") in {(one.level, one.logger) for one in found}
    assert ("ERROR", "ottla.broker.handlers.find_coordinator", "… cannot be created: …") in found
    assert ("WARNING", "ottla.storage.recovery", "…: does not match its segment; rebuilt") in found
    assert ("INFO", "ottla.cli.serve", "… was received") in found


def test_the_page_of_messages_is_current() -> None:
    hint = "run: python -m ottla.broker.log_reference > docs/reference/log-messages.md"
    assert PAGE.read_text(encoding="utf-8") == log_messages(), hint
