"""Settings under which a session of Spark answers small requests soon: of its JVM, and of how it runs plans.

For sessions of tests, and for those who start them; the sessions have pyspark and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

#: A quick compiler and a plain collector: a JVM here lives for minutes and shares two cores with another one.
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: Room from the start: no collection for classes, no compiled code thrown away, few collections of short-lived objects.
_ROOM = (
    "-XX:NewRatio=1",
    "-XX:MetaspaceSize=256m",
    "-XX:ReservedCodeCacheSize=192m",
    "-XX:-UseCodeCacheFlushing",
)
#: The classes are those of releases: who verifies the bytes of twenty thousand of them again takes a second.
_TRUST = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
#: Hudi measures objects by JOL, which otherwise starts another JVM that looks into this one, for several seconds.
_MEASURING = ("-Djol.skipHotspotSAAttach=true",)

#: For a few rows a plan is interpreted in less time than its Java is written and compiled.
_PLANS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
#: What is handed to tasks of one process is small, and read once: no block of 4 MiB for it, no packing, no sum.
_BLOCKS = {
    "spark.broadcast.blockSize": "64k",
    "spark.broadcast.compress": "false",
    "spark.broadcast.checksum": "false",
    "spark.shuffle.compress": "false",
}
FEW_ROWS = {**_PLANS, **_BLOCKS}


#: Tasks of a step, and bytes of the buffer of an open file.
_TASKS, BUFFER_BYTES = 2, 64 << 10
#: Hudi's defaults are for clusters and large files: hundreds of tasks in a step of a metadata table or an index, and a
#: buffer of megabytes, filled with zeros, for every log that is opened.
_PARALLELISM = (
    "archive.delete",
    "bloom.index",
    "cleaner",
    "file.listing",
    "finalize.write",
    "global.index.reconcile",
    "global.simple.index",
    "markers.delete",
    "metadata.index.bloom.filter",
    "metadata.index.column.stats",
    "metadata.index.expression",
    "metadata.index.partition.stats",
    "metadata.index.secondary",
    "metadata.max.init",
    "metadata.record.preparation",
    "rollback",
    "simple.index",
)
HUDI_DEFAULTS = {
    **{f"hoodie.{name}.parallelism": str(_TASKS) for name in _PARALLELISM},
    "hoodie.metadata.repartition.default.partitions": str(_TASKS),
    "hoodie.memory.dfs.buffer.max.size": str(BUFFER_BYTES),
    "hoodie.metadata.max.reader.buffer.size": str(BUFFER_BYTES),
}


def hudi_defaults(folder: Path) -> Path:
    """Write the file of Hudi's defaults into `folder`, which the variable `HUDI_CONF_DIR` then has to name."""
    lines = [f"{name}={value}\n" for name, value in HUDI_DEFAULTS.items()]
    (folder / "hudi-defaults.conf").write_text("".join(lines), "utf-8")
    return folder


def small_session(memory: str) -> dict[str, str]:
    """The settings of a session for a few rows, on this machine alone, with a heap of `memory`."""
    return {
        **FEW_ROWS,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java_options(memory)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def java_options(memory: str) -> list[str]:
    """The options of a JVM with a heap of `memory`."""
    return [*_JVM, f"-Xms{memory}", *_ROOM, *_TRUST, *_MEASURING]


#: Where most of the classes are that a session loads, and looks into again for each closure that it sends to a task.
_ASKED_MOST = ("spark-core_", "spark-catalyst_", "spark-sql_", "spark-sql-api_", "scala-library-", "hadoop-client-api-")


def class_path(*before: str) -> str:
    """The class path before Spark's folder of 250 JARs: `before`, and those of the folder that are asked most.

    Java looks for a class in one JAR after the other, in the order of the folder.
    """
    import pyspark  # only the sessions have it

    folder = Path(pyspark.__file__).parent / "jars"
    found = [str(jar) for name in _ASKED_MOST for jar in sorted(folder.glob(f"{name}*.jar"))]
    return os.pathsep.join((*before, *found))
