"""What holds for all tests."""

import os
import signal

import pytest
from hypothesis import settings

# A busy machine and the address sanitizer are slow, and no property here is about time. The examples are the same in
# every run, so that a commit is green or red and not sometimes; OTTLA_EXPLORE=1 looks for others.
settings.register_profile("ottla", deadline=None, derandomize=not os.environ.get("OTTLA_EXPLORE"))
settings.load_profile("ottla")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that a test starts meet SIGINT as from a terminal, also where the tests run in the background.

    There SIGINT is ignored, and a program inherits that; what is caught, however, starts as the default in it. So it is
    caught here, by a handler that does nothing: an interrupt still does not concern these tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
