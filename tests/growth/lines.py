"""The laws of growth: what each call may cost when one thing grows. The tests hold them, docs/dev/growth.md shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from lakefmt._core.table import Table
from tests.growth import tables
from tests.growth.kit import MEASURES, Line

__all__ = ["AREAS", "LINES"]

_Call = Callable[[Table, int], object]
_Make = Callable[[int], Table]
_FEW, _ROWS = (16, 32, 64), (256, 512, 1024)
_ALL = " ".join(MEASURES)
#: A clean and an archiving that leave a few commits.
_FEW_COMMITS = {
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.clean.commits.retained": "2",
}


def _line(verb: str, grows: str, make: _Make, call: _Call, linear: str = "", **more: object) -> Line:
    """Return a line; `linear` names the measures that may grow with the size, and the others stay as they are."""
    named = frozenset(linear.split())
    assert named <= set(MEASURES), named
    sizes = more.get("sizes") or (_ROWS if grows.startswith(("rows", "keys")) else _FEW)
    return Line(
        verb, grows, make, lambda table, size: partial(call, table, size), named, more.get("warm"), tuple(sizes)
    )  # type: ignore[arg-type]


def _again(verb: str, grows: str, make: _Make, call: _Call, linear: str = "", **more: object) -> Line:
    """Return a line of a second call: the handle remembers what the first one met."""
    return _line(verb, grows, make, call, linear, warm=call, **more)


def _newest(table: Table) -> str:
    return str(table.client.load().timeline.commits[-1].time)


def _first(table: Table) -> str:
    return str(table.client.load().timeline.commits[0].time)


def _parts(size: int) -> pa.Table:
    """Return two rows for each of so many partitions."""
    return pa.concat_tables([tables.rows(2, 10 * number, number, ts=9) for number in range(size)])


def _keys(size: int) -> list[str]:
    return [f"k{number:09}" for number in range(size)]


# ------------------------------------------------------------------------------------------------------- small commits

#: What grows beside a call, and the tables in which it does.
_BESIDE: Mapping[str, _Make] = {
    "rows": tables.plain,
    "files": tables.files,
    "partitions": tables.partitions,
    "commits": tables.commits,
    "archived commits": tables.archived,
    "files of others": tables.foreign,
}
_SMALL: Mapping[str, _Call] = {
    "upsert": lambda table, size: table.upsert(tables.small()),
    "insert": lambda table, size: table.insert(tables.small(10**8)),
    "delete by keys": lambda table, size: table.delete(["k000000003", "k000000005"]),
    "update by a filter": lambda table, size: table.update("city = 'c000000' and id = 'k000000003'", {"ts": 20}),
    "merge": lambda table, size: table.merge(tables.small()).when_matched().when_not_matched().execute(),
}
_WIDE: Mapping[str, _Call] = {
    "upsert": lambda table, size: table.upsert(tables.small(columns=size)),
    "insert": lambda table, size: table.insert(tables.small(10**8, columns=size)),
    "upsert of two columns": lambda table, size: table.upsert(
        tables.small().select(["id", "city", "ts"]), partial=True
    ),
    "delete by keys": _SMALL["delete by keys"],
    "update by a filter": _SMALL["update by a filter"],
}
#: A partition is listed with all files in it, and a timeline with all of its active commits: names are listed, and parsed.
_LISTED = "steps names"
#: Where keys may lie in any partition, all of them are listed.
_OF_COMMITS = {
    ("upsert", "files"): _LISTED,
    ("insert", "files"): f"{_LISTED} read",
    ("delete by keys", "files"): _LISTED,
    ("update by a filter", "files"): f"{_LISTED} requests read",
    ("merge", "files"): _LISTED,
    ("delete by keys", "partitions"): _LISTED,
    ("update by a filter", "partitions"): _LISTED,
    ("merge", "partitions"): _LISTED,
    **{(verb, "commits"): _LISTED for verb in _SMALL},
    **{(verb, "files of others"): _LISTED for verb in _SMALL},
    **{(verb, "rows"): "read written" for verb in _SMALL},
}
#: Logs that are not compacted are read, unless nothing of them is asked.
_OF_LOG_COMMITS = {
    **_OF_COMMITS,
    **{(verb, "commits"): f"{_LISTED} requests read" for verb in ("delete by keys", "update by a filter", "merge")},
    # The history tells which slice a log of an archived commit belongs to.
    **{(verb, "archived commits"): "steps read" for verb in _SMALL},
}


def _small_lines(kind: str, laws: Mapping[tuple[str, str], str]) -> list[Line]:
    return [
        _again(verb, grows, partial(make, kind=kind), call, laws.get((verb, grows), ""))
        for verb, call in _SMALL.items()
        for grows, make in _BESIDE.items()
        if kind == "cow" or (verb not in ("insert", "merge") and grows != "files of others")
    ] + [_again(verb, "columns", partial(tables.columns, kind=kind), call, _ALL) for verb, call in _WIDE.items()]


COPY_ON_WRITE = [
    *_small_lines("cow", _OF_COMMITS),
    _again("upsert", "buckets", tables.buckets, _SMALL["upsert"], _LISTED, sizes=(64, 128, 256)),
    _again("upsert", "row groups", tables.row_groups, _SMALL["upsert"], "steps requests read written"),
    _line(
        "delete of one partition",
        "partitions",
        tables.partitions,
        lambda table, size: table.delete_partitions([{"city": "c000003"}]),
        f"{_LISTED} read",
    ),
    _again(
        "append", "commits", tables.appended, lambda table, size: table.append(tables.small(10**8)), f"{_LISTED} read"
    ),
]
MERGE_ON_READ = _small_lines("mor", _OF_LOG_COMMITS)
BY_METADATA = [
    _again(verb, grows, partial(make, metadata=True), call, linear)
    for verb, call in _SMALL.items()
    for grows, make, linear in (
        ("files", tables.files, f"{_LISTED} requests read"),
        ("partitions", tables.partitions, "steps read"),
    )
]

# -------------------------------------------------------------------------------------------------------- large commits

LARGE = [
    _line(
        "load",
        "rows given",
        lambda size: tables.empty(),
        lambda table, size: table.bulk_insert(tables.rows(size)),
        _ALL,
    ),
    _line(
        "load",
        "partitions given",
        lambda size: tables.empty(),
        lambda table, size: table.bulk_insert(_parts(size)),
        _ALL,
    ),
    _again(
        "upsert", "rows given", lambda size: tables.plain(4), lambda table, size: table.upsert(tables.rows(size)), _ALL
    ),
    _again("upsert", "partitions given", tables.partitions, lambda table, size: table.upsert(_parts(size)), _ALL),
    _again(
        "upsert of logs",
        "rows given",
        lambda size: tables.plain(4, "mor"),
        lambda table, size: table.upsert(tables.rows(size)),
        _ALL,
    ),
    _again(
        "upsert of logs",
        "partitions given",
        partial(tables.partitions, kind="mor"),
        lambda table, size: table.upsert(_parts(size)),
        _ALL,
    ),
    _again(
        "upsert by the metadata table",
        "partitions given",
        partial(tables.partitions, metadata=True),
        lambda table, size: table.upsert(_parts(size)),
        _ALL,
    ),
    _again(
        "insert", "partitions given", lambda size: tables.plain(4), lambda table, size: table.insert(_parts(size)), _ALL
    ),
    _line(
        "delete by keys",
        "keys given",
        lambda size: tables.plain(2048),
        lambda table, size: table.delete(_keys(size)),
        _ALL,
    ),
    _line(
        "delete by keys of logs",
        "keys given",
        lambda size: tables.plain(2048, "mor"),
        lambda table, size: table.delete(_keys(size)),
        _ALL,
    ),
    _line(
        "delete of partitions",
        "partitions given",
        tables.partitions,
        lambda table, size: table.delete_partitions([f"c{n:06}" for n in range(size)]),
        _ALL,
    ),
    _line(
        "load",
        "columns",
        tables.columns,
        lambda table, size: table.bulk_insert(tables.small(10**8, columns=size)),
        _ALL,
    ),
    _line("add column", "columns", tables.columns, lambda table, size: table.alter.add_column("new", pa.int64()), _ALL),
]

# --------------------------------------------------------------------------------------------------------------- reads

_READS: Mapping[str, _Call] = {
    "read": lambda table, size: table.read(),
    "read of one partition": lambda table, size: table.read(filter="city = 'c000000'"),
    "read of one key": lambda table, size: table.read(columns=["id"], filter="id = 'k000000003'"),
    "count": lambda table, size: table.count(),
    "head": lambda table, size: table.head(3),
}
_OF_READS = {
    **{(verb, grows): _ALL for verb in _READS for grows in ("files", "partitions", "rows", "columns")},
    **{(verb, grows): _LISTED for verb in _READS for grows in ("commits", "files of others")},
    **{(verb, "archived commits"): "" for verb in _READS},
    ("read of one partition", "partitions"): _LISTED,
}
_OF_LOG_READS = {
    **_OF_READS,
    **{(verb, "commits"): _ALL for verb in _READS},
    **{(verb, "archived commits"): "steps read" for verb in _READS},
}


def _read_lines(kind: str, laws: Mapping[tuple[str, str], str]) -> list[Line]:
    grown = {**_BESIDE, "columns": tables.columns}
    return [
        _again(verb, grows, partial(make, kind=kind), call, laws[verb, grows])
        for verb, call in _READS.items()
        for grows, make in grown.items()
        if kind == "cow" or (verb not in ("head", "read of one partition") and grows != "files of others")
    ] + [
        _line("open", grows, partial(make, kind=kind), lambda table, size: table.schema, f"{_LISTED} read")
        for grows, make in _BESIDE.items()
        if kind == "cow"
    ]


READS = [
    *_read_lines("cow", _OF_READS),
    _again(
        "read of one key",
        "row groups",
        tables.row_groups,
        _READS["read of one key"],
        "steps requests read",
        sizes=(64, 128, 256),
    ),
    _line(
        "first read of one partition",
        "partitions",
        tables.partitions,
        _READS["read of one partition"],
        f"{_LISTED} read",
    ),
    _line("first read of one partition", "commits", tables.commits, _READS["read of one partition"], _LISTED),
    _again(
        "read",
        "terms of a filter",
        lambda size: tables.plain(64),
        lambda table, size: table.read(filter=" or ".join(f"ts = {n}" for n in range(size))),
        "steps",
    ),
    _again(
        "read",
        "columns of a filter",
        lambda size: tables.plain(20, columns=64),
        lambda table, size: table.read(filter=" and ".join(f"v{n:06} < 5" for n in range(size))),
        "steps requests read",
    ),
    _again(
        "read",
        "keys of a filter",
        lambda size: tables.plain(1024),
        lambda table, size: table.read(filter=[("id", "in", _keys(size))]),
        "steps",
    ),
    _again(
        "read",
        "keys of a filter in SQL",
        lambda size: tables.plain(1024),
        lambda table, size: table.read(filter=f"id in ({', '.join(map(repr, _keys(size)))})"),
        "steps",
    ),
    _again(
        "read",
        "partitions of a filter",
        lambda size: tables.partitions(64),
        lambda table, size: table.read(filter=[("city", "in", [f"c{n:06}" for n in range(size)])]),
        _ALL,
    ),
]
READS_OF_LOGS = [
    *_read_lines("mor", _OF_LOG_READS),
    _again("read", "logs of a slice", tables.logs, _READS["read"], _ALL),
    _again("read", "logs of a slice, keys apart", partial(tables.logs, apart=True), _READS["read"], _ALL),
]
_PLAN: _Call = lambda table, size: table.file_groups([{"city": "c000000"}])  # noqa: E731
READS_BY_METADATA = [
    make_line("read of one partition", grows, partial(make, metadata=True), _READS["read of one partition"], linear)
    for make_line in (_again,)
    for grows, make, linear in (
        ("files", tables.files, _ALL),
        ("partitions", tables.partitions, "steps read"),
    )
] + [
    # The list of partitions is one record, whose names are decoded.
    _line("open and files of one partition", grows, partial(make, metadata=True), _PLAN, linear)
    for grows, make, linear in (
        ("files", tables.files, "steps read"),
        ("partitions", tables.partitions, "steps read"),
    )
]
HISTORY = [
    _again(
        "read as of the first commit",
        "commits",
        tables.commits,
        lambda table, size: table.read(as_of=_first(table)),
        _LISTED,
    ),
    _again("changes", "commits", tables.commits, lambda table, size: table.changes("000"), _ALL),
    _again("changes", "logs of a slice", tables.logs, lambda table, size: table.changes("000"), _ALL),
    _again(
        "changes",
        "logs of a slice, keys apart",
        partial(tables.logs, apart=True),
        lambda table, size: table.changes("000"),
        _ALL,
    ),
    _again(
        "changes of the last commit",
        "archived commits",
        tables.archived,
        lambda table, size: table.changes(_newest(table)),
        "steps",
    ),
    _again("incremental", "commits", tables.commits, lambda table, size: table.incremental("000"), _ALL),
    _again("incremental", "logs of a slice", tables.logs, lambda table, size: table.incremental("000"), _ALL),
    _again("incremental", "files", tables.files, lambda table, size: table.incremental("000"), _ALL),
    _again("history", "commits", tables.commits, lambda table, size: table.history(), _ALL),
    _again(
        "history with the archive",
        "archived commits",
        tables.archived,
        lambda table, size: table.history(archived=True),
        _ALL,
    ),
    _again("files", "files", tables.files, lambda table, size: table.files(), _ALL),
    _again(
        "files of one partition",
        "partitions",
        tables.partitions,
        lambda table, size: table.files([{"city": "c000000"}]),
        _LISTED,
    ),
    _again("stats", "files", tables.files, lambda table, size: table.stats(), _ALL),
]

# ------------------------------------------------------------------------------------------------------------ services


def _found(table: Table, least: int) -> object:
    report = table.check()
    assert len(report.findings) >= least
    return report


_CLEANED = {"hoodie.clean.commits.retained": "1"}
SERVICES = [
    _line("clean", "files to remove", tables.twice, lambda table, size: table.clean(options=_CLEANED), _ALL),
    _line("clean", "commits", tables.commits, lambda table, size: table.clean(options=_CLEANED), _ALL),
    _line("clean with nothing to do", "files", tables.files, lambda table, size: table.clean(), "steps read names"),
    _line(
        "clean with nothing to do",
        "partitions",
        tables.partitions,
        lambda table, size: table.clean(),
        "steps read names",
    ),
    _line("archive", "commits", tables.commits, lambda table, size: table.archive(options=_FEW_COMMITS), _ALL),
    _line(
        "archive with nothing to do", "archived commits", tables.archived, lambda table, size: table.archive(), "steps"
    ),
    _line("compact", "logs of a slice", tables.logs, lambda table, size: table.compact(), _ALL),
    _line("compact", "file slices", tables.logged, lambda table, size: table.compact(), _ALL),
    _line("log compaction", "logs of a slice", tables.logs, lambda table, size: table.compact(log=True), _ALL),
    _line("cluster", "files", tables.files, lambda table, size: table.cluster(), _ALL),
    _line("cluster", "partitions", tables.partitions, lambda table, size: table.cluster(), _ALL),
    _line("check", "files", tables.files, lambda table, size: table.check(), _ALL),
    _line("check", "partitions", tables.partitions, lambda table, size: table.check(), _ALL),
    _line("check", "commits", tables.commits, lambda table, size: table.check(), _ALL),
    _line("check", "archived commits", tables.archived, lambda table, size: table.check(), _ALL),
    _line("check of damage", "files", tables.damaged, lambda table, size: _found(table, size), _ALL),
    _line("check of files of no commit", "files", tables.unnamed, lambda table, size: _found(table, size // 3), _ALL),
    _line("full check", "archived commits", tables.archived, lambda table, size: table.check("full"), _ALL),
    _line("full check", "files", tables.files, lambda table, size: table.check("full"), _ALL),
    _line("full check", "logs of a slice", tables.logs, lambda table, size: table.check("full"), _ALL),
    _line("full check", "columns", tables.columns, lambda table, size: table.check("full"), _ALL),
    _line("vacuum", "files", tables.files, lambda table, size: table.vacuum(orphans=True), _ALL),
    _line("advise", "files", tables.files, lambda table, size: table.advise(), _ALL),
    _line("advise", "commits", tables.commits, lambda table, size: table.advise(), _ALL),
    _line("rollback", "files written", tables.twice, lambda table, size: table.undo.rollback(_newest(table)), _ALL),
    _line("savepoint", "files", tables.files, lambda table, size: table.undo.savepoint(_newest(table)), _ALL),
    _line(
        "metadata table made",
        "files",
        tables.files,
        lambda table, size: table.upsert(tables.small(), options={"hoodie.metadata.enable": "true"}),
        _ALL,
    ),
    _line(
        "metadata table made",
        "partitions",
        tables.partitions,
        lambda table, size: table.upsert(tables.small(), options={"hoodie.metadata.enable": "true"}),
        _ALL,
    ),
]

# ------------------------------------------------------------------------------------------------------------- streams


def _streamed(table: Table, size: int) -> None:
    # One buffer: how many a worker joins into one segment depends on the moment.
    with table.open_stream(commit_interval=10**7, flush_interval=10**7, mutation_buffer_lines_num=10**6) as stream:
        stream.extend({"id": key, "city": "c000000", "ts": 9, "v000000": 1.0} for key in _keys(size))


def _flushed(table: Table, size: int) -> None:
    with table.open_stream(commit_interval=10**7, flush_interval=0) as stream:
        for key in _keys(size):
            stream.upsert({"id": key, "city": "c000000", "ts": 9, "v000000": 1.0})
            stream.flush()


def _followed(table: Table, size: int) -> list[object]:
    return [*table.stream(follow=False, threads=1)]


STREAMS = [
    _line("stream", "rows given", lambda size: tables.plain(8), _streamed, _ALL),
    _line("stream", "flushes", lambda size: tables.plain(8), _flushed, _ALL),
    _line("stream of ten rows", "files", tables.files, lambda table, size: _streamed(table, 10), _ALL),
    _line("stream of ten rows", "partitions", tables.partitions, lambda table, size: _streamed(table, 10), _ALL),
    _line("stream of ten rows", "commits", tables.commits, lambda table, size: _streamed(table, 10), _ALL),
    _line("reading as a stream", "commits", tables.commits, _followed, _ALL),
    # A slice is read once for each plan of a stream; what several plans cost is in test_growth_of_catching_up.py.
    _line("reading as a stream", "logs of a slice", tables.logs, _followed, _ALL, sizes=(12, 24, 48)),
    _line("reading as a stream", "files", tables.files, _followed, _ALL),
]

#: The lines of each part of the page, under its heading.
AREAS: Mapping[str, list[Line]] = {
    "Small commits, copy-on-write": COPY_ON_WRITE,
    "Small commits, merge-on-read": MERGE_ON_READ,
    "Small commits with the metadata table": BY_METADATA,
    "Large commits": LARGE,
    "Reads, copy-on-write": READS,
    "Reads, merge-on-read": READS_OF_LOGS,
    "Reads with the metadata table": READS_BY_METADATA,
    "Changes and history": HISTORY,
    "Services and checks": SERVICES,
    "Streams": STREAMS,
}
LINES = [line for lines in AREAS.values() for line in lines]
