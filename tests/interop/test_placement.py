"""Replicas of new partitions are where Apache Kafka 3.9 would have placed them from the same start."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from ottla.cluster.image import BrokerNode
from ottla.cluster.placement import assign_from
from ottla.testing.apache_kafka import KAFKA_3_9, ApacheKafka, missing_programs
from ottla.testing.waiting import WAIT_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

# Each line: brokers with their racks, the number of partitions, the factor, the start, the first partition.
PROGRAM = """
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

public class Placement {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            List<BrokerMetadata> brokers = Arrays.stream(words[0].split(",")).map(text -> {
                String[] parts = text.split("@");
                return new BrokerMetadata(
                    Integer.parseInt(parts[0]), parts.length > 1 ? Optional.of(parts[1]) : Optional.empty());
            }).collect(Collectors.toList());
            int[] numbers = Arrays.stream(words).skip(1).mapToInt(Integer::parseInt).toArray();
            Map<Integer, List<Integer>> assigned = AdminUtils.assignReplicasToBrokers(
                brokers, numbers[0], numbers[1], numbers[2], numbers[3]);
            System.out.println("placed " + new TreeMap<>(assigned).values().stream()
                .map(replicas -> replicas.stream().map(String::valueOf).collect(Collectors.joining(",")))
                .collect(Collectors.joining(" ")));
        }
    }
}
"""


def test_replicas_are_where_kafka_places_them(tmp_path: Path) -> None:
    rng = random.Random(7)
    asked, placed = [], []
    for _ in range(300):
        count = rng.randint(1, 9)
        racks = rng.choice([None, ["a"], ["a", "b"], ["a", "b", "c"], ["c", "a", "b", "a", "a"]])
        brokers = {
            node_id: BrokerNode(node_id, {}, None if racks is None else rng.choice(racks))
            for node_id in sorted(rng.sample(range(20), count))
        }
        partitions, factor = rng.randint(1, 40), rng.randint(1, count)
        start, first = rng.randrange(count), rng.choice([0, 0, 1, 5, 30])
        named = ",".join(str(node.node_id) + (f"@{node.rack}" if node.rack else "") for node in brokers.values())
        asked.append(f"{named} {partitions} {factor} {start} {first}")
        assigned = assign_from(brokers, range(first, first + partitions), factor, start, start)
        placed.append("placed " + " ".join(",".join(map(str, replicas)) for replicas in assigned))
    source = tmp_path / "Placement.java"
    source.write_text(PROGRAM)
    done = subprocess.run(
        ["java", "-cp", f"{ApacheKafka.resolve(KAFKA_3_9).jars}/*", str(source)],
        input="\n".join(asked),
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    theirs = [line for line in done.stdout.splitlines() if line.startswith("placed ")]
    assert list(zip(asked, placed, strict=True)) == list(zip(asked, theirs, strict=True))
