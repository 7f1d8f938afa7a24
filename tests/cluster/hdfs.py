"""HDFS on a host of its own: a name node and a data node.

`python -m tests.cluster.hdfs` starts both, and ends with them.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import lru_cache
from pathlib import Path

from tests.cluster.hosts import DATA, HDFS
from tests.cluster.jars import jars
from tests.quick_java import QUICK_JAVA

from dovetail.engine.storage import files
from dovetail.engine.storage.remote import Remote

ADDRESS = f"hdfs://{HDFS.name}:8020"
_SERVERS = "org.apache.hadoop.hdfs.server"


def hdfs_place_for(name: str) -> Remote:
    """A directory of HDFS, which takes files."""
    _wait()
    return Remote(f"{ADDRESS}/data/{name}")


@lru_cache
def _wait(patience_s: float = 60.0) -> None:
    """Wait until the data node has told the name node that it is there."""
    end = time.monotonic() + patience_s
    while True:
        try:
            return files.write(Remote(f"{ADDRESS}/ready"), b"yes")
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def main() -> None:
    """Serve until the host ends."""
    place = DATA / "hdfs"
    place.mkdir()
    _configure(place)
    java = [f"{os.environ['JAVA_HOME']}/bin/java", *QUICK_JAVA.split(), "-Xmx192m", "-cp", _class_path(place)]
    subprocess.run([*java, f"{_SERVERS}.namenode.NameNode", "-format", "-nonInteractive"], check=True)
    name_node = subprocess.Popen([*java, f"{_SERVERS}.namenode.NameNode"])
    data_node = subprocess.Popen([*java, f"{_SERVERS}.datanode.DataNode"])
    name_node.wait()
    data_node.wait()


def _configure(place: Path) -> None:
    settings = {
        "fs.defaultFS": ADDRESS,
        "dfs.replication": 1,
        "dfs.namenode.name.dir": place / "names",
        "dfs.datanode.data.dir": place / "blocks",
        "dfs.datanode.hostname": HDFS.name,
        "dfs.client.use.datanode.hostname": "true",
    }
    lines = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    for name in ("core-site.xml", "hdfs-site.xml"):
        (place / name).write_text(f"<configuration>{lines}</configuration>")


def _class_path(place: Path) -> str:
    """The servers, and what comes with Spark: Hadoop's client, and logging."""
    spark = Path(os.environ["SPARK_HOME"]) / "jars"
    return ":".join([str(place), *map(str, jars("hdfs")), f"{spark}/*"])


if __name__ == "__main__":
    main()
