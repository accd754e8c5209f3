"""MariaDB on the loopback address, by the packages of Debian: `make cdc-env` installs them.

Each server has a private folder and port, no networking beyond 127.0.0.1, and a row log with full images and metadata. The folder's first
contents are made once for each process and copied.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SECONDS_TO_START = 60.0
PROGRAMS = ("mariadbd", "mariadb-install-db")
#: The account that has all rights; it has no password and is reached from this machine only.
ADMINISTRATOR = "root"
#: The account of a reader: it may read all tables and the log.
READER, READER_PASSWORD = "reader", "Made-up_p:w@1"


def program(name: str) -> str | None:
    """Return the path of a program of the server; Debian keeps it where only root's path looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def mariadb_missing() -> str | None:
    """Return why the server cannot be asked; None: it can."""
    missing = [name for name in PROGRAMS if program(name) is None]
    if missing:
        return f"{', '.join(missing)} not found: make cdc-env"
    try:
        import pymysql  # noqa: F401
    except ImportError:
        return "PyMySQL is not installed: pip install 'lakefmt[mysql]'"
    return None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class MariaServer:
    """One server; ``with MariaServer(folder) as server`` starts and ends it.

    Attributes:
        port: where it listens on 127.0.0.1, the same after a restart.
        options: more options of the program, used by the next start.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.options: tuple[str, ...] = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MariaServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the program and wait until it answers."""
        if not (self.folder / "mysql").exists():
            install(self.folder)
        socket_path = (
            Path(tempfile.gettempdir()) / f"lakefmt-mariadb-{self.port}.sock"
        )  # a long path is no socket's name
        told = [
            "--no-defaults",
            *(["--user=root"] if os.getuid() == 0 else []),
            f"--datadir={self.folder}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={socket_path}",
            f"--pid-file={self.folder}/server.pid",
            f"--log-error={self.folder}/server.log",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--gtid-strict-mode=1",
            "--gtid-domain-id=7",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--sync-binlog=0",
            "--skip-name-resolve",
            "--performance-schema=0",
            "--lock-wait-timeout=120",
            "--character-set-server=utf8mb4",
            *self.options,
        ]
        self._process = subprocess.Popen(
            [str(program("mariadbd")), *told], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()

    def _wait(self) -> None:
        import pymysql

        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            try:
                self.connect().close()
            except pymysql.err.OperationalError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = (self.folder / "server.log").read_text("utf-8", "replace")[-2000:]
                    raise RuntimeError(f"MariaDB does not start: {said}") from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End the program in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the program at once."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(SECONDS_TO_START)
            self._process = None

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """Return a connection of PyMySQL as the administrator, each statement a transaction of its own."""
        import pymysql

        given = {
            "user": ADMINISTRATOR,
            "charset": "utf8mb4",
            "autocommit": True,
            "database": database,
            "ssl_disabled": True,
        }
        return pymysql.connect(host="127.0.0.1", port=self.port, **{**given, **options})

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Execute statements in a connection of their own; return the rows of the last one."""
        with contextlib.closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def create_reader(
        self, rights: Sequence[str] = ("SELECT", "REPLICATION SLAVE", "BINLOG MONITOR")
    ) -> tuple[str, str]:
        """Create the account of a reader with these rights on everything, and return its name and password."""
        self.execute(
            f"create or replace user {READER}@'127.0.0.1' identified by '{READER_PASSWORD}'",
            f"grant {', '.join(rights)} on *.* to {READER}@'127.0.0.1'",
        )
        return READER, READER_PASSWORD


def install(folder: Path) -> None:
    """Make the first contents of a server's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    told = [
        "--no-defaults",
        f"--datadir={folder}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--innodb-log-file-size=16M",
        *(["--user=root"] if os.getuid() == 0 else []),
    ]
    done = subprocess.run([str(program("mariadb-install-db")), *told], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"mariadb-install-db ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        )


@contextlib.contextmanager
def mariadb_server(*options: str) -> Iterator[MariaServer]:
    """Run a server in a folder of its own that goes with it."""
    folder = tempfile.mkdtemp(prefix="lakefmt-mariadb-")
    try:
        with MariaServer(Path(folder) / "data", *options) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
