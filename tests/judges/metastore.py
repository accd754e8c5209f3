"""A Hive metastore with Derby in memory, one JVM, from the JARs that PySpark 3.5 brings (Hive 2.3.9)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from tests.judges.spark import JudgeSilent, SparkEnvironment, spark_environment

START_SECONDS = 90.0


def settings(port: int, warehouse: Path) -> dict[str, str]:
    """What the metastore is started with."""
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:memory:metastore{port};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(warehouse),
        "hive.async.log.enabled": "false",
    }


def jars_of(environment: SparkEnvironment) -> Path:
    """The folder of PySpark's JARs."""
    found = sorted(Path(str(environment.python)).parents[1].glob("lib/python*/site-packages/pyspark/jars"))
    if not found:
        raise JudgeSilent("PySpark's JARs are not beside its interpreter")
    return found[0]


@contextlib.contextmanager
def running_metastore(environment: SparkEnvironment | None = None) -> Iterator[str]:
    """The address of a metastore that runs in the body.

    Raises:
        JudgeSilent: it cannot be had, or did not come up in time.
    """
    environment = environment or spark_environment()
    if environment.python is None or environment.java is None:
        raise JudgeSilent("PySpark or Java 17 not found; run python tools/spark_env.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="lakefmt-metastore-") as scratch:
        folder = Path(scratch)
        lines = [
            f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
            for name, value in settings(port, folder / "warehouse").items()
        ]
        (folder / "hive-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        memory = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        command = [
            f"{environment.java}/bin/java",
            *memory,
            "-cp",
            os.pathsep.join((scratch, f"{jars_of(environment)}/*")),
        ]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=scratch, start_new_session=True)
        try:
            wait_for(port, process, folder / "log")
            yield f"thrift://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when something listens on the port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)  # between two looks at another process
    raise JudgeSilent("the Hive metastore did not come up", log.read_text(errors="replace")[-3000:])
