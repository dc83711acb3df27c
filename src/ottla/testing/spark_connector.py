"""Spark's own connector for Kafka (`format("kafka")`) and its Avro functions, as the yardsticks of ours."""

from __future__ import annotations

from typing import Final

from ottla.testing import maven
from ottla.testing.maven import Artifact

# The newest that Maven Central had when this was written, one minor version behind the Spark it runs on here; the token
# provider is the newest that was there, and is loaded but not used without delegation tokens. They are named one by one
# because Spark's own description asks a second repository for them.
CONNECTOR_VERSION: Final = "4.2.0"
ARTIFACTS: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
)
# The newest of Spark's Avro functions that was there; it runs on this Spark.
AVRO_VERSION: Final = "4.1.1"


def connector_jars() -> str:
    """The jars of the connector, from the cache or from Maven, as the setting `spark.jars` takes them."""
    directory = maven.jars(f"spark-kafka-{CONNECTOR_VERSION}", ARTIFACTS, transitive=False)
    return ",".join(sorted(str(path) for path in directory.glob("*.jar")))


def avro_jars() -> str:
    """The jar of `from_avro` and `to_avro`, in the same way."""
    artifact = Artifact("org.apache.spark", "spark-avro_2.13", AVRO_VERSION)
    directory = maven.jars(f"spark-avro-{AVRO_VERSION}", [artifact], transitive=False)
    return ",".join(sorted(str(path) for path in directory.glob("*.jar")))
