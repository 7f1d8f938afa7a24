"""Files from Maven Central, fetched by Spark itself: a Kafka broker, and Spark's connectors for Kafka, Avro and S3.

`fetch` runs outside the hosts, which have no network but their own. What it fetches stays in the cache of Dovetail.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pyspark

from dovetail.engine.cache import cache_root

_JARS = cache_root() / "jars" / f"spark-{pyspark.__version__}"
_SPARK = "org.apache.spark:{}:{}"
_KAFKA, _TOKENS, _AVRO = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "spark-avro_2.13"
_PROVIDED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
"""Comes with Spark."""
_NEEDED = (_KAFKA, _TOKENS, _AVRO, "kafka-clients", "commons-pool2")
"""Does not."""
_WANTED = {_KAFKA: pyspark.__version__, _AVRO: pyspark.__version__}
_NEAREST = {_KAFKA: "4.2.0", _TOKENS: "4.1.0-preview1", _AVRO: "4.1.1"}
"""Where that version cannot be had: the newest of each that could be, and that this Spark runs with."""
_BROKER = "org.apache.kafka:kafka_2.13:4.1.1"
_HADOOP = "org.apache.hadoop:hadoop-aws:{}"
_SDK = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
_SDK_VERSION = "2.35.4"
"""The version that hadoop-aws names. The bundle that it asks for has every service of AWS, 690 MB; these parts are 35."""
_NOT_FOR_S3 = f"{_PROVIDED},software.amazon.awssdk:bundle,org.wildfly.openssl:wildfly-openssl,io.netty:*,org.slf4j:*"


def fetch(env: dict[str, str]) -> None:
    """Fetch the broker and the connectors, unless they are there."""
    _fetched("broker", [_BROKER], "", env)
    store = [_HADOOP.format(_hadoop_version(env)), *(f"software.amazon.awssdk:{part}:{_SDK_VERSION}" for part in _SDK)]
    assert _fetched("s3", store, _NOT_FOR_S3, env), f"{store} cannot be fetched"
    if jars("connectors"):
        return
    if not _fetched("connectors", [_SPARK.format(*one) for one in _WANTED.items()], _PROVIDED, env):
        nearest = dict(_NEAREST)
        print(f"Spark's connectors of version {pyspark.__version__} cannot be fetched; taken instead: {nearest}")
        tokens = _SPARK.format(_TOKENS, nearest.pop(_TOKENS))
        apart = f"{_PROVIDED},org.apache.spark:{_TOKENS}"
        assert _fetched("tokens", [tokens], _PROVIDED, env), f"{tokens} cannot be fetched"
        assert _fetched("connectors", [_SPARK.format(*one) for one in nearest.items()], apart, env)


def jars(name: str) -> list[Path]:
    """The files that were fetched under a name: broker, connectors, tokens or s3."""
    return sorted((_JARS / name / "jars").glob("*.jar"))


def connectors() -> str:
    """The connectors for Kafka and Avro as a value of spark.jars; every host has them, as an image would."""
    every = [*jars("connectors"), *jars("tokens")]
    return ",".join(f"local:{next(jar for jar in every if name in jar.name)}" for name in _NEEDED)


def store_connector() -> str:
    """The connector for object stores as a value of spark.jars."""
    return ",".join(f"local:{jar}" for jar in jars("s3"))


def _hadoop_version(env: dict[str, str]) -> str:
    """The version of Spark's own Hadoop, which a connector must have, too."""
    (jar,) = Path(env["SPARK_HOME"]).glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def _fetched(name: str, packages: list[str], without: str, env: dict[str, str]) -> bool:
    """Whether Spark could fetch the packages with all that they need."""
    if jars(name):
        return True
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
            if "unresolved dependency" not in done.stdout + done.stderr:
                raise OSError(f"{packages} cannot be fetched: {(done.stdout + done.stderr)[-3000:]}")
            return False
        files.rename(_JARS / name)
    return True
