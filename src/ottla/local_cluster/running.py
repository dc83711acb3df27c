"""What of a local cluster runs: its processes by name, and the call of `ottla up` that looks after them.

The file is written before anything depends on it and says what was started, not what is alive: whoever reads it checks
each process by its identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from ottla.errors import ConfigError
from ottla.local_cluster.layout import replace_text
from ottla.local_cluster.process import ProcessIdentity, is_alive

FILE_NAME: Final = "running.json"


@dataclass(frozen=True, slots=True)
class Running:
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)
    supervisor: ProcessIdentity | None = None  # in the foreground of some terminal

    def living_supervisor(self) -> ProcessIdentity | None:
        return self.supervisor if self.supervisor is not None and is_alive(self.supervisor) else None


def read_running(directory: Path) -> Running:
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_text())
        supervisor = document["supervisor"]
        return Running(
            {name: ProcessIdentity(**each) for name, each in document["processes"].items()},
            None if supervisor is None else ProcessIdentity(**supervisor),
        )
    except FileNotFoundError:
        return Running()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: this names no processes ({error!r}); delete it if nothing runs") from error


def write_running(directory: Path, running: Running) -> None:
    document = {
        "processes": {name: asdict(identity) for name, identity in running.processes.items()},
        "supervisor": None if running.supervisor is None else asdict(running.supervisor),
    }
    replace_text(directory / FILE_NAME, json.dumps(document, indent=2) + "\n")
