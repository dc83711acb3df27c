"""On the path of a driver that a test kills: its commits stop once a batch is decided and none of it is committed.

The file that `OTTLA_TEST_HOLD` names is made then, and the process waits for its parent to end.
"""

import os
import time
from pathlib import Path

HOLD = os.environ.get("OTTLA_TEST_HOLD", "")

if HOLD:
    from ottla.spark.delivery import commits

    end_all = commits.Commits._end_all

    async def hold(self, transactions, batch_id, *, commits):
        if commits and transactions and batch_id >= int(os.environ["OTTLA_TEST_HOLD_BATCH"]):
            Path(HOLD).touch()
            parent = os.getppid()
            while os.getppid() == parent:
                time.sleep(0.02)
            os._exit(1)
        await end_all(self, transactions, batch_id, commits=commits)

    commits.Commits._end_all = hold  # type: ignore[method-assign]
