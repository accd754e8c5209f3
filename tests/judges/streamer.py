"""Hudi's own ingest tool, HoodieStreamer 0.14.0, on files and on Kafka: one process a run, some fifteen seconds.

It is what `lakefmt ingest` takes turns with. Its tables have version 6.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 280
RELEASE = "HoodieStreamer 0.14.0"
_OPENED = (
    *("java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io"),
    *("java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent"),
    *("java.base/java.util.concurrent.atomic", "java.base/sun.nio.ch", "java.base/sun.nio.cs"),
    *("java.base/sun.security.action", "java.base/sun.util.calendar", "java.security.jgss/sun.security.krb5"),
)
_SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.shuffle.partitions": "2",
}


@cache
def streamer_environment() -> dict[str, Any]:
    """What tools/kafka_env.py finds or fetches."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools/kafka_env.py"), "--streamer"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    environment: dict[str, Any] = json.loads(found.stdout)
    return environment


def streamer_missing() -> str:
    """Why the tool cannot be asked; empty: it can."""
    missing = streamer_environment()["missing"]
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items())


class HoodieStreamer:
    """Runs the tool on one table.

    Args:
        folder: for its files.
        table: path of the table.
        columns: name → Avro type of the rows; the key, the partition and the ordering are `id`, `city` and `ts`.
        properties: of the source.
    """

    def __init__(self, folder: Path, table: Path, columns: Mapping[str, object], properties: Mapping[str, str]) -> None:
        self._folder, self._table = folder, table
        self.requests = 0
        schema = {
            "type": "record",
            "name": "row",
            "fields": [{"name": name, "type": kind} for name, kind in columns.items()],
        }
        self._schema = folder / "schema.avsc"
        self._schema.write_text(json.dumps(schema), "utf-8")
        values = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.deltastreamer.schemaprovider.source.schema.file": f"file://{self._schema}",
            "hoodie.deltastreamer.schemaprovider.target.schema.file": f"file://{self._schema}",
            "hoodie.upsert.shuffle.parallelism": "2",
            "hoodie.metadata.enable": "false",
            **properties,
        }
        self._properties = folder / "streamer.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()), "utf-8")

    def run(self, source: str, *arguments: str, table_type: str = "COPY_ON_WRITE") -> None:
        """Run it once.

        Args:
            source: the name of a class of its sources.
            *arguments: more of its command line.
            table_type: of the table.
        """
        self.requests += 1
        environment = streamer_environment()
        java = [str(environment["java"]), *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED)]
        java += ["-Xmx900m", "-Duser.timezone=UTC", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        java += [f"-D{name}={value}" for name, value in _SPARK.items()]
        told = ["--spark-master", "local[1]", "--props", f"file://{self._properties}", "--table-type", table_type]
        told += ["--source-class", f"org.apache.hudi.utilities.sources.{source}", "--source-ordering-field", "ts"]
        told += ["--schemaprovider-class", "org.apache.hudi.utilities.schema.FilebasedSchemaProvider"]
        told += ["--target-base-path", f"file://{self._table}", "--target-table", "t", "--op", "UPSERT", *arguments]
        classes = f"{environment['spark_jars']}/*:{environment['streamer_jars']}/*"
        command = [*java, "-cp", classes, "org.apache.hudi.utilities.streamer.HoodieStreamer", *told]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd=self._folder,
        )
        (self._folder / "streamer.log").write_text(done.stdout + done.stderr, "utf-8")
        if done.returncode:
            errors = [
                line for line in (done.stdout + done.stderr).splitlines() if "Caused by" in line or "Exception" in line
            ]
            raise AssertionError(f"{RELEASE} ended with {done.returncode}: {' | '.join(errors[:8])[:3000]}")
