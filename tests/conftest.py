"""What holds for all tests."""

import signal

import pytest
from hypothesis import settings

# A busy machine and the address sanitizer are slow, and no property here is about time.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that a test starts meet SIGINT as from a terminal, also where the tests run in the background.

    There SIGINT is ignored, and a program inherits that; what is caught, however, starts as the default in it. So it is
    caught here, by a handler that does nothing: an interrupt still does not concern these tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
