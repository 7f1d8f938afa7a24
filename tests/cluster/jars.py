"""Files from Maven Central, fetched by Spark itself: a Kafka broker, HDFS, and connectors for Kafka, Avro and S3.

`fetch` runs outside the hosts, which have no network but their own. What it fetches stays in the cache of Dovetail. The
connectors for Kafka and Avro are those that the example names, so that its lines are resolved here.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import tomllib
import zlib
from pathlib import Path

import pyspark
from tests.cluster.hosts import ROOT

from dovetail.engine.cache import cache_root

EXAMPLE = ROOT / "examples" / "pipelines" / "kafka_to_postgres.toml"
_JARS = cache_root() / "jars" / f"spark-{pyspark.__version__}"
_NAMED: dict[str, str] = tomllib.loads(EXAMPLE.read_text())["pipeline"]["spark"]
_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1"
_BROKER = "org.apache.kafka:kafka_2.13:4.1.1"
_HADOOP = "org.apache.hadoop:hadoop-aws:{}"
_HDFS = "org.apache.hadoop:hadoop-client-minicluster:{}"
_SDK = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
_SDK_VERSION = "2.35.4"
"""The version that hadoop-aws names. Its bundle has every service of AWS, 690 MB; these parts are 14 MB."""
_PROVIDED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime,io.netty:*,org.slf4j:*"
"""Comes with Spark."""
_NOT_FOR_S3 = f"{_PROVIDED},software.amazon.awssdk:bundle,org.wildfly.openssl:wildfly-openssl"


def fetch(env: dict[str, str]) -> None:
    """Fetch the broker and the connectors, unless they are there."""
    _fetch("broker", [_BROKER], "", env)
    store = [_HADOOP.format(_hadoop_version(env)), *(f"software.amazon.awssdk:{part}:{_SDK_VERSION}" for part in _SDK)]
    _fetch("s3", store, _NOT_FOR_S3, env)
    _fetch("hdfs", [_HDFS.format(_hadoop_version(env))], _PROVIDED, env)
    _fetch(_KAFKA, _NAMED["spark.jars.packages"].split(","), _NAMED.get("spark.jars.excludes", ""), env)
    _fetch("token", [_PROVIDER], "", env)
    (token,) = (jar for jar in jars("token") if _NAMED["spark.jars"].rpartition("/")[2] in jar.name)
    shutil.copy(token, _JARS / _KAFKA / "jars")


_KAFKA = f"kafka-{zlib.crc32(repr(_NAMED).encode()):08x}"


def jars(name: str) -> list[Path]:
    """The files that were fetched under a name."""
    return sorted((_JARS / name / "jars").glob("*.jar"))


def connectors() -> str:
    """The connectors for Kafka and Avro as a value of spark.jars; every host has them, as an image would."""
    return ",".join(f"local:{jar}" for jar in jars(_KAFKA))


def store_connector() -> str:
    """The connector for object stores as a value of spark.jars."""
    return ",".join(f"local:{jar}" for jar in jars("s3"))


def _hadoop_version(env: dict[str, str]) -> str:
    """The version of Spark's own Hadoop, which a connector must have, too."""
    (jar,) = Path(env["SPARK_HOME"]).glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def _fetch(name: str, packages: list[str], without: str, env: dict[str, str]) -> None:
    """Have Spark fetch the packages with all that they need."""
    if jars(name):
        return
    _JARS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_JARS) as place:
        program, files = Path(place) / "nothing.py", Path(place) / "ivy"
        program.write_text("")
        settings = [f"spark.jars.ivy={files}", f"spark.jars.excludes={without}", "spark.master=local[1]"]
        options = [word for one in settings for word in ("--conf", one)]
        submit = f"{env['SPARK_HOME']}/bin/spark-submit"
        done = subprocess.run(
            [submit, "--packages", ",".join(packages), *options, str(program)],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"{packages} cannot be fetched: {(done.stdout + done.stderr)[-3000:]}")
        files.rename(_JARS / name)
