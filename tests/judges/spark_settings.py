"""Settings under which a session of Spark answers small requests soon: of its JVM, and of how it runs plans.

For sessions of tests; imported by processes that have pyspark and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

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
PLANS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def small_session(memory: str) -> dict[str, str]:
    """The settings of a session for a few rows, on this machine alone, with a heap of `memory`."""
    return {
        **PLANS,
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
    folder = Path(pyspark.__file__).parent / "jars"
    found = [str(jar) for name in _ASKED_MOST for jar in sorted(folder.glob(f"{name}*.jar"))]
    return os.pathsep.join((*before, *found))
