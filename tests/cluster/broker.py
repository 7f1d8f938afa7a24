"""Runs a Kafka broker of one node on the driver's host, and talks to it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.jars import jars
from tests.quick_java import QUICK_JAVA

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own files in a deprecated way
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import NewTopic

SERVER, ON_CLUSTER = "localhost:9092", "driver:9094"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=HERE://localhost:9092,CLUSTER://driver:9094,CONTROLLER://localhost:9093
listener.security.protocol.map=HERE:PLAINTEXT,CLUSTER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=HERE
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
log.dirs={place}/log
"""


class Broker:
    """A broker in KRaft mode on the driver's host, for programs there and on other hosts."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._place.mkdir()
        properties = self._place / "server.properties"
        properties.write_text(_PROPERTIES.format(place=self._place))
        java = [f"{os.environ['JAVA_HOME']}/bin/java", *QUICK_JAVA.split(), "-Xmx256m", "-cp"]
        scala = Path(os.environ["SPARK_HOME"]).glob("jars/scala-library-*.jar")  # left out of what Spark fetches
        java.append(":".join(map(str, [*jars("broker"), *scala])))
        formatted = [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-c", str(properties)]
        subprocess.run(formatted, check=True, capture_output=True)
        with (self._place / "output").open("wb") as output:
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=output, stderr=output)
        _wait()
        self._admin = KafkaAdminClient(bootstrap_servers=SERVER)
        self._producer = KafkaProducer(bootstrap_servers=SERVER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()
        self._admin.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        self._admin.create_topics([NewTopic(topic, partitions, 1)])

    def send(self, topic: str, values: list[bytes], partitions: int) -> None:
        """Send messages, to each partition in turn, and wait until they are stored."""
        for at, value in enumerate(values):
            self._producer.send(topic, value, partition=at % partitions)
        self._producer.flush()

    def messages(self, topic: str) -> list[tuple[bytes | None, bytes]]:
        """Key and value of all messages of a topic."""
        consumer = KafkaConsumer(
            topic, bootstrap_servers=SERVER, auto_offset_reset="earliest", consumer_timeout_ms=2000
        )
        found = [(message.key, message.value) for message in consumer]
        consumer.close()
        return found


def _wait(patience_s: float = 60.0) -> None:
    """Wait until the broker listens; the client would leave a socket open for each attempt before."""
    end = time.monotonic() + patience_s
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", 9092)) == 0:
                return
        assert time.monotonic() < end, "the broker does not start"
        time.sleep(0.2)
