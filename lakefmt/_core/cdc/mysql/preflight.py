"""What a server lacks for being followed, and the statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lakefmt._core.cdc.events import SourceFinding, SourceName
from lakefmt._core.cdc.mysql.connection import Session
from lakefmt._core.cdc.mysql.snapshot import describe_table
from lakefmt._core.cdc.mysql.values import codec_of
from lakefmt.errors import SourceRefused

__all__ = ["findings"]

_OLDEST: Final = (10, 5)


def findings(session: Session, tables: Sequence[SourceName], patterns: Sequence[str]) -> list[SourceFinding]:
    """Return what the server and the tables lack."""
    version = session.value("version()")
    return [
        *_of_version(version),
        *_of_settings(session),
        *_of_rights(session),
        *_of_tables(session, tables, patterns),
    ]


def _of_version(version: str) -> Iterator[SourceFinding]:
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
    if numbers < _OLDEST:
        yield SourceFinding(f"MariaDB {version} does not name columns in its log: 10.5 or newer is needed")


def _of_settings(session: Session) -> Iterator[SourceFinding]:
    names = "log_bin binlog_format binlog_row_image binlog_row_metadata gtid_strict_mode expire_logs_days binlog_expire_logs_seconds"
    quoted = ", ".join(f"'{name}'" for name in names.split())
    has = dict(session.rows(f"show global variables where variable_name in ({quoted})"))
    if has.get("log_bin") != "ON":
        yield SourceFinding(
            "the server writes no log", "[mariadb] log_bin in the server's configuration, and a restart"
        )
        return
    for name, value, what in (
        ("binlog_format", "ROW", "the log has statements where it needs rows"),
        ("binlog_row_image", "FULL", "the log has not all columns of a changed row"),
        ("binlog_row_metadata", "FULL", "the log does not name the columns of tables"),
    ):
        if has.get(name) != value:
            yield SourceFinding(f"{what}: {name} is {has.get(name)}", f"SET GLOBAL {name} = {value}")
    if has.get("gtid_strict_mode") != "ON":
        message = "transactions may be out of order after a fail-over: gtid_strict_mode is OFF"
        yield SourceFinding(message, "SET GLOBAL gtid_strict_mode = ON", stops=False)
    seconds = float(has.get("binlog_expire_logs_seconds") or 0)
    if 0 < seconds < 86_400:
        message = f"the server keeps its log for {seconds:.0f} s: a reader that pauses for longer loses its position"
        yield SourceFinding(message, "SET GLOBAL binlog_expire_logs_seconds = 604800", stops=False)


def _of_rights(session: Session) -> Iterator[SourceFinding]:
    for statement, right in (
        ("show binary logs", "BINLOG MONITOR"),
        ("show status like 'binlog_snapshot_file'", ""),
    ):
        try:
            session.rows(statement)
        except SourceRefused:
            if right:
                yield SourceFinding(f"the account lacks {right}", _grant(session, right))
    grants = " ".join(str(row[0]).upper() for row in session.rows("show grants"))
    if "REPLICATION SLAVE" not in grants and "ALL PRIVILEGES ON *.*" not in grants:
        yield SourceFinding("the account lacks REPLICATION SLAVE", _grant(session, "REPLICATION SLAVE"))


def _grant(session: Session, right: str) -> str:
    user, _, host = session.value("current_user()").rpartition("@")
    return f"GRANT {right} ON *.* TO '{user}'@'{host}'"


def _of_tables(session: Session, tables: Sequence[SourceName], patterns: Sequence[str]) -> Iterator[SourceFinding]:
    if not tables:
        yield SourceFinding(f"no table is called {' or '.join(patterns)}, or the account may not read it", stops=False)
    described = {
        SourceName(row[0], row[1]): (row[2], row[3])
        for row in session.rows(
            "select table_schema, table_name, table_type, ifnull(engine, '') from information_schema.tables"
        )
    }
    for name in tables:
        table_type, engine = described.get(name, ("", ""))
        if table_type == "SYSTEM VERSIONED":
            mend = f"ALTER TABLE {name} DROP SYSTEM VERSIONING"
            yield SourceFinding(f"{name} is system-versioned: the log shows its old rows as rows", mend)
        if engine.lower() != "innodb":
            message = f"{name} is a table of {engine}: its rows are not read at one moment"
            yield SourceFinding(message, f"ALTER TABLE {name} ENGINE = InnoDB", stops=False)
        yield from _of_columns(session, name)
    yield from _of_cascades(session, tables)


def _of_columns(session: Session, name: SourceName) -> Iterator[SourceFinding]:
    try:
        table = describe_table(session, name)
    except SourceRefused as error:
        yield SourceFinding(f"{name}: {error}")
        return
    if table is not None and not table.keys:
        yield SourceFinding(f"{name} has no primary key: its rows are read in one transaction", stops=False)
    rows = session.rows(
        "select column_name, character_set_name from information_schema.columns where table_schema = %s and table_name = %s "
        "and character_set_name is not null",
        name,
    )
    for column, charset in rows:
        if codec_of(charset) is None:
            yield SourceFinding(f"{name}.{column} has the character set {charset}, which cannot be decoded")


def _of_cascades(session: Session, tables: Sequence[SourceName]) -> Iterator[SourceFinding]:
    rows = session.rows(
        "select constraint_schema, table_name, constraint_name from information_schema.referential_constraints "
        "where delete_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT') or update_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT')"
    )
    followed = set(tables)
    for schema, table, constraint in rows:
        if SourceName(schema, table) in followed:
            message = f"{schema}.{table}: the log does not have the changes that the foreign key {constraint} makes"
            yield SourceFinding(message, stops=False)
