"""What holds for all tests."""

import gc
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

# A busy machine and the address sanitizer are slow, and no property here is about time. The examples are the same in
# every run, so that a commit is green or red and not sometimes; OTTLA_EXPLORE=1 looks for others. OTTLA_EXAMPLES is for
# properties that do not say themselves with how many examples they are tried.
settings.register_profile(
    "ottla",
    deadline=None,
    derandomize=not os.environ.get("OTTLA_EXPLORE"),
    max_examples=int(os.environ.get("OTTLA_EXAMPLES", "100")),
)
settings.load_profile("ottla")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that a test starts meet signals as from a terminal, also where the tests run in the background.

    There SIGINT is ignored, under nohup SIGHUP, and a program inherits that; what is caught, however, starts as the
    default in it. So they are caught here, by a handler that does nothing: they still do not concern these tests.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_finish() -> None:
    """Ten thousand tests and all modules stay to the end: the collector of garbage need not look at them again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Done:
    """What a command returned and wrote."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs the command line in this process."""
    from ottla.cli.main import main  # most tests do without it

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run
