"""What the scripts that install judges share: a command whose end is told, and one process at a time. Standard library only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"


def run(command: Sequence[str], seconds: float, **variables: str) -> str | None:
    """Run a command; return None, or the end of what it said when it failed.

    Args:
        command: the words.
        seconds: after which it is stopped.
        **variables: of its environment, beside those of this process.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env={**os.environ, **variables},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else " | ".join(done.stdout.strip().splitlines()[-3:])


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Let one process at a time of this clone install what has a name."""
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as handle:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
