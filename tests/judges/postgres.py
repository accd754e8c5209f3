"""A private PostgreSQL server on the loopback address: it says with ``SELECT`` what a table is."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

#: Where Debian puts the programs, the newest release first.
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "12",
    "max_replication_slots": "12",
    "fsync": "off",
    "shared_buffers": "32MB",
    "wal_sender_timeout": "20s",
    "log_min_messages": "error",
    # The client library waits inside C code, where no test's time limit is noticed.
    "statement_timeout": "120s",
    "lock_timeout": "120s",
    "idle_in_transaction_session_timeout": "120s",
}
SECONDS_TO_START = 60


class PostgresServer:
    """A server of its own with a database of its own for each test that asks."""

    def __init__(self, programs: Path, folder: Path, user: str) -> None:
        self.programs, self.folder, self.user = programs, folder, user
        self.host, self.port = "127.0.0.1", _free_port()
        self._databases = 0

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        if os.geteuid() == 0:  # the server refuses to run as root
            command = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", *command]
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_TO_START,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {(done.stdout + done.stderr).decode(errors='replace')[-2000:]}")

    def start(self) -> None:
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        told = f"-p {self.port} -k {self.folder} -h {self.host} {settings}"
        log = str(self.folder / "log")
        # The server keeps its standard streams: they go to the log, or who reads them would wait for its end.
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-s", "-l", log, "-o", told, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-s", "-w", "stop")

    def connect(self, database: str = "postgres") -> Any:
        import psycopg2

        connection = psycopg2.connect(
            host=self.host, port=self.port, user="postgres", dbname=database, options="-c timezone=UTC"
        )
        connection.autocommit = True
        return connection

    def database(self) -> str:
        """Make a database and return its name."""
        self._databases += 1
        name = f"shop{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def execute(self, *statements: str, database: str = "postgres") -> None:
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def drop_slot(self, slot: str, database: str) -> None:
        """Drop a slot; the server takes a moment to see that its reader has gone."""
        from psycopg2 import errors

        deadline = time.monotonic() + 30
        while True:
            try:
                return self.execute(f"SELECT pg_drop_replication_slot('{slot}')", database=database)
            except errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise

    def rows(self, query: str, database: str) -> list[tuple[Any, ...]]:
        """What the server answers."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetchall()
        finally:
            connection.close()

    def drop(self, database: str) -> None:
        """Remove what a test left behind, or its log would be kept and its slots be missing."""
        self.execute(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '{database}' AND active",
        )
        deadline = time.monotonic() + SECONDS_TO_START
        while self.rows(f"SELECT 1 FROM pg_replication_slots WHERE database = '{database}' AND active", "postgres"):
            assert time.monotonic() < deadline, "a slot stays in use"
        self.execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{database}'",
            f"DROP DATABASE {database} WITH (FORCE)",
        )


def typed_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table as tuples."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def postgres_missing() -> str:
    """Why the server cannot be asked; empty: it can."""
    if not _FOLDERS:
        return "no programs below /usr/lib/postgresql"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "setpriv is not there, and PostgreSQL does not run as root"
    try:
        import psycopg2  # noqa: F401
    except ImportError:
        return "psycopg2 is not installed"
    return ""


@contextmanager
def postgres_service() -> Iterator[PostgresServer]:
    """Run a server, empty, which `postgres_missing` says can be had."""
    user = _user()
    with tempfile.TemporaryDirectory(prefix="lakefmt-pg-", dir=_folder(), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        server = PostgresServer(_FOLDERS[0], folder, user)
        options = ("-A", "trust", "-U", "postgres", "--locale=C.UTF-8", "-E", "UTF8", "-N")
        server.run("initdb", "-D", str(folder / "data"), *options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _folder() -> str:
    """In memory where there is room: a server writes much that nobody needs later."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > (1 << 30) else "/tmp"


def _user() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return "nobody"
