"""Debezium's own engine: it reads a server's log by itself, and its messages are what Kafka would have."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS_TO_WAIT = 120.0

#: Topic, key and value.
Message = tuple[str, bytes | None, bytes | None]


@cache
def debezium_environment() -> dict[str, object]:
    """What tools/debezium_env.py finds or fetches."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools/debezium_env.py")],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    environment: dict[str, object] = json.loads(found.stdout)
    return environment


def debezium_missing() -> str:
    """Why the engine cannot be asked; empty: it can."""
    missing = debezium_environment()["missing"]
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items()) if isinstance(missing, dict) else ""


class DebeziumEngines:
    """Engines in one JVM, one for each set of properties."""

    def __init__(self, folder: Path, settings: Mapping[str, Mapping[str, str]]) -> None:
        self.folder = folder
        for name, properties in settings.items():
            whole = {
                "name": name,
                "topic.prefix": name,
                "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
                "offset.storage.file.filename": str(folder / f"{name}.offsets"),
                "offset.flush.interval.ms": "1000",
                "poll.interval.ms": "50",
                **properties,
            }
            lines = "".join(f"{key}={value}\n" for key, value in whole.items())
            (folder / f"{name}.properties").write_text(lines, "utf-8")
        environment = debezium_environment()
        self._log = (folder / "engine.log").open("wb")
        self._process = subprocess.Popen(
            [
                str(environment["java"]),
                "-Xmx300m",
                "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
                f"{environment['jars']}/*",
                str(ROOT / "tools/debezium/Engine.java"),
                *(str(folder / f"{name}.properties") for name in settings),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> DebeziumEngines:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def messages(self, name: str) -> list[Message]:
        """The messages so far, of whole lines."""
        path = self.folder / f"{name}.properties.messages"
        text = path.read_text("ascii") if path.exists() else ""
        found = []
        for line in text[: text.rfind("\n") + 1].splitlines():
            if line.startswith("ended "):
                raise AssertionError(f"Debezium ended: {[_decoded(part) for part in line.split()[1:]]}")
            topic, key, value = (_decoded(part) for part in line.split(" "))
            found.append(((topic or b"").decode(), key, value))
        return found

    def wait_for(self, name: str, part: bytes) -> list[Message]:
        """Wait for a message with some bytes in its value; return all so far."""
        deadline = time.monotonic() + SECONDS_TO_WAIT
        while True:
            messages = self.messages(name)
            if any(value is not None and part in value for _, _, value in messages):
                return messages
            log = (self.folder / "engine.log").read_text("utf-8", "replace")[-3000:]
            assert self._process.poll() is None, f"Debezium's JVM ended: {log}"
            assert time.monotonic() < deadline, f"{name}: {part!r} does not come: {log}"
            time.sleep(0.1)


def _decoded(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)
