"""The parent's end of a peer's process (``benchmarks/worker.py``)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: A clustering of fifty million rows takes minutes.
SECONDS = 3600.0


class PeerFailed(Exception):
    """A peer could not do what it was asked; the message is its own."""


class NotOffered(PeerFailed):
    """A peer has no such job."""


class Child:
    """A running peer; :meth:`ask` sends one request and waits for the answer."""

    def __init__(self, peer: str, python: str, log: Path, environ: dict[str, str] | None = None) -> None:
        self.peer, self._log = peer, log
        log.parent.mkdir(parents=True, exist_ok=True)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with log.open("ab") as noise:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.worker", peer],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                cwd=ROOT,
                env={**variables, "TZ": "UTC", **(environ or {})},
                text=True,
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._lines.put(line)
        self._lines.put(None)

    def ask(self, op: str, **given: Any) -> dict[str, Any]:
        """Return the answer of one operation.

        Raises PeerFailed with what the peer said, also when it ended or did not answer in time; NotOffered.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then no answer comes
            self._process.stdin.write(json.dumps({"op": op, **given}) + "\n")
            self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=SECONDS)
        except queue.Empty:
            self.kill()
            raise PeerFailed(f"no answer to {op} within {SECONDS:.0f} s") from None
        if line is None:
            raise PeerFailed(f"the process ended ({self._process.wait(10)}): {self._last_words()}")
        answer = dict(json.loads(line))
        if answer.get("not_offered"):
            raise NotOffered(op)
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        said = self._log.read_text("utf-8", errors="replace").strip().splitlines()
        return said[-1] if said else "it said nothing"

    def close(self) -> None:
        """Let the process end by itself, then make sure of it."""
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        self.kill()

    def kill(self) -> None:
        """End the process with all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
