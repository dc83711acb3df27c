"""`make demo` and `make demo-cluster` run, count right and end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LOG_CHARACTERS = 10_000
TIMEOUT_S = 1800  # each of its steps has a limit of its own, and a busy machine needs minutes for one


def end_of_log(log: Path) -> str:
    """What Spark and the pipeline said last: an error of a query is there, and gone with the directory."""
    return f"\n{log.name}:\n{log.read_text()[-LOG_CHARACTERS:]}" if log.exists() else ""


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("demo", ["demo.py", "demo_cluster.py"])
def test_the_demo_accounts_for_every_event(tmp_path: Path, demo: str) -> None:
    command = [sys.executable, str(EXAMPLES / demo), "4"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr + end_of_log(tmp_path / "out" / "demo" / "spark.log")
    assert "all accounted for" in done.stdout
    assert (tmp_path / "out" / "demo" / "revenue.svg").read_text().startswith("<svg")


# The pipeline as it stands, with stand-ins for Spark: a thread like those of pyspark, and questions that take a while.
STOPPED = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import ottla.spark, pipeline

class Query:
    name = "slow"
    @property
    def isActive(self):
        print("asked", flush=True)
        time.sleep(0.3)
        return True
    def processAllAvailable(self): print("all", flush=True)
    def stop(self): print("stopped", flush=True)

class Session:
    sparkContext = type("Context", (), {"setLogLevel": lambda *_: None})()
    def stop(self): print("end", flush=True)

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
ottla.spark.session = lambda *_, **__: Session()
pipeline.start = lambda *_: [Query()]
pipeline.main("nowhere", "nowhere")
"""


@pytest.mark.usefixtures("java")
def test_the_pipeline_finishes_what_is_there_whenever_it_is_told_to_stop() -> None:
    command = [sys.executable, "-c", STOPPED, str(EXAMPLES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pipeline:
        assert pipeline.stdout is not None
        assert pipeline.stdout.readline() == "asked\n"
        pipeline.terminate()  # in the middle of the question
        words = pipeline.stdout.read().split()
    assert (pipeline.returncode, words[-3:]) == (0, ["all", "stopped", "end"])
