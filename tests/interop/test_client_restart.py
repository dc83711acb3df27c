"""A broker that is killed and comes back while `ottla produce` and `ottla consume` are at work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ottla.testing.ports import free_port
from ottla.testing.waiting import WAIT_S

LINES = 3000
KILLS = 3


def ottla(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "ottla", *arguments], **options)


def start_broker(directory: Path, port: int) -> subprocess.Popen[bytes]:
    broker = ottla("serve", "--listen", f"127.0.0.1:{port}", "--data", str(directory), stdout=subprocess.PIPE)
    assert broker.stdout is not None
    assert broker.stdout.readline().startswith(b"ready")
    return broker


def test_every_line_arrives_once_and_in_order_whatever_happens_to_the_broker(tmp_path: Path):
    port = free_port()
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"}
    broker = start_broker(tmp_path, port)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        assert ottla("topics", "create", "lines", env=environment, stdout=subprocess.DEVNULL).wait(WAIT_S) == 0
        reading = ("consume", "lines", "--from-beginning", "--max-messages", str(LINES))
        consumer = ottla(*reading, env=environment, stdout=subprocess.PIPE)
        producer = ottla("produce", "lines", env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        processes += [consumer, producer]
        assert producer.stdin is not None
        assert consumer.stdout is not None
        for number in range(LINES):
            producer.stdin.write(b"%d\n" % number)
            producer.stdin.flush()
            if number == 0:
                # Both are connected now: who finds no broker when it starts does not wait for one.
                assert consumer.stdout.readline() == b"0\n"
            if number % 50 == 0:
                time.sleep(0.01)  # many small batches: some are under way whenever the broker dies
            if number % (LINES // KILLS) == LINES // KILLS // 2:
                broker.kill()
                broker.communicate()
                broker = start_broker(tmp_path, port)
        _, err = producer.communicate(timeout=WAIT_S)
        assert producer.returncode == 0, err
        assert err.startswith(b"3,000 records to lines: ")
        out, _ = consumer.communicate(timeout=WAIT_S)
        assert consumer.returncode == 0
        assert out.split() == [b"%d" % number for number in range(1, LINES)]
    finally:
        for process in (broker, *processes):
            process.kill()
            process.communicate()
