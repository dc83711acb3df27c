"""How many files and sockets this process may have open at once, and how they are shared out.

Half of the table is for files, the rest but a reserve for connections. What holds files can close and open them again
(`disk.OpenFiles`), so no number of partitions needs more; connections past their share are refused. The reserve is for
what is open for a moment: checkpoints, directories that are synced or listed, pipes to other processes.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

LIMIT_MAX = 1 << 20  # where the system sets none
RESERVE_MAX = 256


@dataclass(frozen=True, slots=True)
class DescriptorTable:
    limit: int

    @classmethod
    def of_process(cls) -> DescriptorTable:
        """As this process was started, or as `raise_limit` made it."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(LIMIT_MAX if soft == resource.RLIM_INFINITY else min(soft, LIMIT_MAX))

    @property
    def files_max(self) -> int:
        """Files that are kept open for the next one who needs them."""
        return self.limit // 2

    @property
    def connections_max(self) -> int:
        return self.limit - self.files_max - min(self.limit // 8, RESERVE_MAX)


def raise_limit() -> None:
    """Takes as many descriptors as the system gives without asking: for a process that is all ours."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return  # some systems have a lower bound of their own; what we have is enough to begin with
