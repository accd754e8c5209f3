"""Fetch what tests of ingestion ask: ``python tools/kafka_env.py [--registry] [--streamer] [--flink]``; ``--find`` only looks.

Apache Kafka (54 MB) comes to ``.cache/kafka``; with ``--registry`` Apicurio, a schema registry (158 MB, needs Java 25), to ``.cache/registry``; with
``--streamer`` Hudi's own ingest tool, HoodieStreamer 0.14.0 (570 MB, three minutes), to ``.cache/streamer``, where the jars of Spark come
out of PySpark 3.2.4's source package and all others by Maven; with ``--flink`` Hudi 0.14.0 on Flink (222 MB) to ``.cache/hudi_flink``. What there is is printed as JSON; what cannot be had is named under ``missing``
and the exit code stays 0: the tests that need it say so. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from installing import alone, run

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
KAFKA, REGISTRY, STREAMER, FLINK = (CACHE / name for name in ("kafka", "registry", "streamer", "hudi_flink"))
CONNECTOR = CACHE / "spark-kafka"
SECONDS = 1200
#: The oldest Java that runs each.
BROKER_JAVA, REGISTRY_JAVA = 17, 25


class Artifact(NamedTuple):
    """What Maven is asked for.

    Attributes:
        group: its group.
        name: its name.
        release: its release.
        without: what it asks for and is left out, each a group and a name; the name may be ``*``.
    """

    group: str
    name: str
    release: str
    without: tuple[tuple[str, str], ...] = ()

    def element(self) -> str:
        """Return it as a dependency of a pom."""
        left_out = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
            for group, name in self.without
        )
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId><version>{self.release}</version>"
            f"{f'<exclusions>{left_out}</exclusions>' if left_out else ''}</dependency>\n"
        )


def pom(name: str, artifacts: Sequence[Artifact]) -> str:
    """Return a project that depends on artifacts."""
    head = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    own = f"<groupId>lakefmt</groupId><artifactId>{name}</artifactId><version>1</version>"
    return f"{head}{own}<dependencies>\n{''.join(each.element() for each in artifacts)}</dependencies></project>\n"


def copy_jars(project: str, folder: Path) -> str | None:
    """Copy the jars of a project's dependencies into a folder; return None or why that failed."""
    maven = shutil.which("mvn")
    if maven is None:
        return "mvn not found"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(project, "utf-8")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"]
    return run([maven, "-q", "-B", "-f", str(folder / "pom.xml"), *goal], SECONDS)


def is_made(folder: Path, recipe: str) -> bool:
    """Return whether a folder is complete, by today's recipe."""
    stamp = folder / "complete"
    return stamp.is_file() and stamp.read_text("utf-8") == recipe


def make(part: Part) -> str | None:
    """Make a folder anew; return None or why that failed. A half-made folder has no stamp."""
    begin = time.monotonic()
    print(f"kafka_env: making {part.folder.relative_to(ROOT)} ({part.size})", file=sys.stderr, flush=True)
    shutil.rmtree(part.folder, ignore_errors=True)
    part.folder.mkdir(parents=True)
    failed = part.fetch()
    if failed is None:
        (part.folder / "complete").write_text(part.recipe, "utf-8")
        print(f"kafka_env: made in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return failed


KAFKA_PROJECT = pom(
    "kafka",
    [Artifact("org.apache.kafka", "kafka_2.13", "4.4.0"), Artifact("org.apache.kafka", "kafka-tools", "4.4.0")],
)
#: Spark's own source of Kafka, for PySpark 3.5; Maven had no newer release of it.
CONNECTOR_PROJECT = pom(
    "spark-kafka",
    [
        Artifact(
            "org.apache.spark",
            "spark-sql-kafka-0-10_2.12",
            "3.5.7",
            (("org.apache.hadoop", "*"), ("org.scala-lang", "*"), ("org.slf4j", "*"), ("org.xerial.snappy", "*")),
        )
    ],
)
REGISTRY_ARTIFACT = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
PYSPARK = "pyspark==3.2.4"
STREAMER_PROJECT = pom(
    "streamer",
    [
        # Schema registries and sources that no test asks; Spark comes out of PySpark.
        Artifact(
            "org.apache.hudi",
            "hudi-utilities_2.12",
            "0.14.0",
            tuple(
                (group, "*")
                for group in ("io.confluent", "org.apache.pulsar", "io.streamnative.connectors", "org.apache.spark")
            ),
        ),
        Artifact(
            "org.apache.spark", "spark-streaming-kafka-0-10_2.12", "3.2.1", (("org.apache.spark", "spark-core_2.12"),)
        ),
        Artifact("org.apache.parquet", "parquet-avro", "1.12.2"),
    ],
)
#: Flink as it comes, the bundle, which has what it needs of Hudi in it, and Hadoop's file systems.
FLINK_PROJECT = pom(
    "hudi-flink",
    [
        *(
            Artifact("org.apache.flink", f"flink-{part}", "1.17.2")
            for part in ("clients", "table-api-java-bridge", "table-planner-loader", "table-runtime", "connector-base")
        ),
        Artifact("org.apache.hudi", "hudi-flink1.17-bundle", "0.14.0", (("*", "*"),)),
        Artifact("org.apache.hadoop", "hadoop-client-api", "3.3.1"),
        Artifact("org.apache.hadoop", "hadoop-client-runtime", "3.3.1"),
        Artifact("com.github.luben", "zstd-jni", "1.5.5-5"),
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    ],
)
#: Left out of Maven's jars: PySpark has them, or others of the same classes.
OF_SPARK = re.compile(
    r"(hadoop|hive|scala|jackson|slf4j|log4j|spark-(?!streaming-kafka|token-provider-kafka)|orc-|derby)"
)


def fetch_registry() -> str | None:
    """Fetch and unpack the registry; return None or why that failed."""
    maven = shutil.which("mvn")
    if maven is None:
        return "mvn not found"
    goal = ["dependency:copy", f"-Dartifact={REGISTRY_ARTIFACT}", f"-DoutputDirectory={REGISTRY}"]
    failed = run([maven, "-q", "-B", *goal], SECONDS)
    for archive in REGISTRY.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(REGISTRY / "app", filter="data")
        archive.unlink()
    return failed


def java_release(java: str) -> int:
    """Return the release of a Java; 0: it does not answer."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def find_java(least: int) -> str | None:
    """Return a Java of at least a release: of JAVA_HOME, of the path, or beside the usual ones."""
    home = os.environ.get("JAVA_HOME")
    usual = [Path(home) / "bin/java"] if home else []
    usual += [Path(found)] if (found := shutil.which("java")) else []
    usual += sorted(Path("/usr/lib/jvm").glob("*/bin/java")) + sorted(Path("/opt").glob("*/bin/java"))
    return next((str(each) for each in usual if each.is_file() and java_release(str(each)) >= least), None)


def fetch_streamer() -> str | None:
    """Fetch Spark's jars, and beside them those of Hudi that Spark lacks; return None or why that failed."""
    packed = STREAMER / "packed"
    pip = ["pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(packed), PYSPARK]
    failed = run([sys.executable, "-m", *pip], SECONDS)
    if failed is not None:
        return failed
    spark = STREAMER / "spark"
    spark.mkdir()
    for archive in packed.glob("*.tar.gz"):
        with tarfile.open(archive) as members:
            for member in members:
                name = PurePosixPath(member.name)
                contents = members.extractfile(member) if name.suffix == ".jar" and name.parent.name == "jars" else None
                if contents is not None:
                    with contents, (spark / name.name).open("wb") as jar:
                        shutil.copyfileobj(contents, jar)
    shutil.rmtree(packed)
    failed = copy_jars(STREAMER_PROJECT, STREAMER)
    if failed is None:
        take_additions(spark, STREAMER / "lib", STREAMER / "add")
    return failed


def take_additions(spark: Path, maven: Path, additions: Path) -> None:
    """Move the jars of artifacts that Spark lacks."""
    additions.mkdir()
    known = {artifact_of(jar) for jar in spark.glob("*.jar")}
    for jar in sorted(maven.glob("*.jar")):
        if artifact_of(jar) not in known and not OF_SPARK.match(jar.name):
            jar.rename(additions / jar.name)
    shutil.rmtree(maven)


def artifact_of(jar: Path) -> str:
    """Return the name of a jar without its release."""
    return re.split(r"-(?=\d)", jar.stem, maxsplit=1)[0]


class Part(NamedTuple):
    """What is fetched into a folder.

    Attributes:
        folder: of it.
        recipe: what it is made of; another one makes it anew.
        size: for people.
        fetch: makes it.
    """

    folder: Path
    recipe: str
    size: str
    fetch: Callable[[], str | None]


PARTS = {
    "kafka": Part(KAFKA, KAFKA_PROJECT, "54 MB", lambda: copy_jars(KAFKA_PROJECT, KAFKA)),
    "spark": Part(CONNECTOR, CONNECTOR_PROJECT, "7 MB", lambda: copy_jars(CONNECTOR_PROJECT, CONNECTOR)),
    "registry": Part(REGISTRY, REGISTRY_ARTIFACT, "158 MB", fetch_registry),
    "streamer": Part(STREAMER, f"{STREAMER_PROJECT}{PYSPARK}\n", "570 MB, three minutes", fetch_streamer),
    "flink": Part(FLINK, FLINK_PROJECT, "222 MB, half a minute", lambda: copy_jars(FLINK_PROJECT, FLINK)),
}


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Fetch what tests of ingestion ask.")
    parser.add_argument("--find", action="store_true", help="look only, fetch nothing")
    parser.add_argument("--registry", action="store_true", help="a schema registry, too")
    parser.add_argument("--streamer", action="store_true", help="Hudi's own ingest tool, too")
    parser.add_argument("--flink", action="store_true", help="Hudi on Flink, too")
    parser.add_argument("--spark", action="store_true", help="Spark's source of Kafka, too")
    given = parser.parse_args()
    missing: dict[str, str] = {}
    for name, part in PARTS.items():
        with alone(name):
            if (name == "kafka" or getattr(given, name)) and not is_made(part.folder, part.recipe):
                option = "" if name == "kafka" else f" --{name}"
                failed = f"not made: python tools/kafka_env.py{option}" if given.find else make(part)
                missing |= {} if failed is None else {name: failed}
    java, newer = find_java(BROKER_JAVA), find_java(REGISTRY_JAVA) if given.registry else None
    if java is None:
        missing["java"] = f"a Java of {BROKER_JAVA} or newer (Debian's openjdk-17-jre-headless)"
    if given.registry and newer is None:
        missing["registry_java"] = f"a Java of {REGISTRY_JAVA} or newer"
    found = {
        "java": java,
        "jars": str(KAFKA / "lib"),
        "registry_java": newer,
        "registry": str(REGISTRY / "app"),
        "connector_jars": str(CONNECTOR / "lib"),
        "spark_jars": str(STREAMER / "spark"),
        "streamer_jars": str(STREAMER / "add"),
        "flink_jars": str(FLINK / "lib"),
    }
    print(json.dumps({**found, "missing": missing}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
