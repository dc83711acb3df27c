"""Passwords in ZooKeeper: Apache Kafka 3.9 decrypts what we have encrypted, and the other way round."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

import pytest

from ottla.security.password_encoder import BLOCK_BYTES, SALT_BYTES, PasswordEncoder
from ottla.testing.apache_kafka import KAFKA_3_9, ApacheKafka, missing_programs
from ottla.testing.waiting import WAIT_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

PROGRAM = """
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

public class Encoder {
    public static void main(String[] arguments) throws Exception {
        PasswordEncoder encoder = PasswordEncoder.encrypting(
            new Password(arguments[0]), null, "AES/CBC/PKCS5Padding", 128, 4096);
        System.out.println(encoder.decode(arguments[1]).value());
        System.out.println(encoder.encode(new Password(arguments[2])));
    }
}
"""


def test_both_read_what_the_other_has_written(tmp_path: Path) -> None:
    source = tmp_path / "Encoder.java"
    source.write_text(PROGRAM)
    encoder = PasswordEncoder("the secret")
    ours = encoder.encode("hunter2 \u20ac", secrets.token_bytes(SALT_BYTES), secrets.token_bytes(BLOCK_BYTES))
    jars = ApacheKafka.resolve(KAFKA_3_9).jars
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", f"{jars}/*", str(source)]
    done = subprocess.run(
        [*command, "the secret", ours, "hunter3"], check=False, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    decoded, theirs = done.stdout.splitlines()[-2:]
    assert decoded == "hunter2 \u20ac"
    assert encoder.decode(theirs) == "hunter3"
