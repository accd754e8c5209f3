"""Every way into lakefmt: how it is called well, argument by argument. A new one fails a test until it has its row."""

from __future__ import annotations

import inspect
import io
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.catalogs.entries import MemoryCatalog
from lakefmt._core.consumers.registry import TableConsumers
from lakefmt._core.producers.append_tags import TableTags
from lakefmt._core.read.stats import TimelineView
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.table_accessors import TableAlter, TableIndexes, TablePlot
from lakefmt._core.write.context import ARGUMENTS

__all__ = ["ENTRY_POINTS", "OPTIONS", "SCHEMA", "EntryPoint", "Place", "arguments_of", "public_entry_points"]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("note", pa.string())])
OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
_NUMBERS = itertools.count()


def rows(*ids: str, ts: int = 2) -> pa.Table:
    """Return rows of these keys."""
    columns = {"id": list(ids), "city": ["sf"] * len(ids), "ts": [ts] * len(ids), "note": ["n"] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


class Place:
    """A table in memory, and beside it room for another one that a call may make."""

    def __init__(self, table_type: str = "cow") -> None:
        self.table_type = table_type
        self.space = f"hostile-{next(_NUMBERS)}"
        self.url = f"memory://{self.space}/t"
        self.store = MemoryStore(self.space)
        table = lakefmt.create_table(
            self.url,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type=table_type,
            options=OPTIONS,
        )
        self.first = str(table.upsert(rows("k1", "k2", ts=1)).instant)
        table.savepoint(self.first)
        self.newest = str(table.upsert(rows("k2", "k3", "k4")).instant)
        self.picture = self.look()
        self.restore()

    def look(self) -> dict[str, bytes]:
        """Return every object that is there."""
        return {item.name: self.store.read(item.name) for item in self.store.list()}

    def restore(self) -> None:
        """Bring back what was there in the beginning."""
        self.store.delete_tree("")
        for name, data in self.picture.items():
            self.store.put(name, data)
        self.table: Table = lakefmt.open_table(self.url, options=OPTIONS)

    def rows(self) -> pa.Table:
        """Return the table's rows, as whoever opens it now sees them."""
        return lakefmt.open_table(self.url).read(meta_columns=True)

    def context(self) -> lowlevel.WriteContext:
        """Begin a write."""
        return lowlevel.begin_write(self.table)


Argument = Callable[[Place], object]


@dataclass(frozen=True)
class EntryPoint:
    """One way in.

    Attributes:
        call: calls it with the arguments given.
        good: what each argument is in a call that works; of those not named here the default is good enough.
        rows: the arguments that take rows or keys, and so are asked with frames, too.
        leaves: it is called within a write that is undone afterwards, which leaves a rollback on the timeline.
    """

    call: Callable[..., object]
    good: Mapping[str, Argument] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    leaves: bool = False


def _verb(name: str, good: Mapping[str, Argument] | None = None, rows: tuple[str, ...] = ()) -> EntryPoint:
    return EntryPoint(lambda place, **given: getattr(place.table, name)(**given), good or {}, rows)


def _open_and_close(place: Place, **given: object) -> object:
    stream = place.table.open_stream(**given)
    stream.close()
    return stream.metrics()


def _on(
    make: Callable[[Place], object], name: str, good: Mapping[str, Argument] | None = None, rows: tuple[str, ...] = ()
) -> EntryPoint:
    return EntryPoint(lambda place, **given: getattr(make(place), name)(**given), good or {}, rows)


def _shown(make: Callable[[Place], object], name: str) -> EntryPoint:
    return EntryPoint(lambda place: getattr(make(place), name))


def _drained(entry: EntryPoint) -> EntryPoint:
    return EntryPoint(lambda place, **given: entry.call(place, **given).read_all(), entry.good, entry.rows)  # type: ignore[attr-defined]


def _gathered(entry: EntryPoint, method: str) -> EntryPoint:
    """Return the entry point of a verb whose answer does nothing before `method` is called."""
    return EntryPoint(lambda place, **given: getattr(entry.call(place, **given), method)(), entry.good, entry.rows)


def _merged(place: Place, **given: Any) -> object:
    return place.table.merge(**given).when_matched().when_not_matched().execute()


def _erased(place: Place, **given: Any) -> object:
    """Erase rows of the table without its savepoint, which comes back when the call is refused."""
    place.table.delete_savepoint(place.first)
    alone = place.look()
    try:
        return place.table.erase(**given)
    except lakefmt.LakefmtError:
        if place.look() == alone:
            place.restore()
        raise


def _table(place: Place) -> Table:
    return place.table


def _snapshot(place: Place) -> lakefmt.Snapshot:
    return place.table.snapshot()


def _tags(place: Place) -> TableTags:
    return place.table.tags


def _tagged(name: str) -> Callable[..., object]:
    """Delete or restore a tag; for the call that works it is made first, and goes when the call is refused."""

    def call(place: Place, **given: object) -> object:
        if not isinstance(given.get("name"), str) or given["name"] != "good":
            return getattr(place.table.tags, name)(**given)
        place.table.tags.create("good")
        tagged = place.look()
        try:
            return getattr(place.table.tags, name)(**given)
        except lakefmt.LakefmtError:
            if place.look() == tagged:
                place.restore()
            raise

    return call


def _stream_and_close(place: Place, **given: object) -> object:
    with place.table.stream(**given) as stream:
        return stream.position


def _consumers(place: Place) -> TableConsumers:
    return place.table.consumers


def _index(place: Place) -> TableIndexes:
    return place.table.index


def _alter(place: Place) -> TableAlter:
    return place.table.alter


def _dropped(place: Place, **given: object) -> object:
    """Drop an index; for the call that works it is made first."""
    if given.keys() == {"name"} and isinstance(given["name"], str) and given["name"] == "files":
        place.table.index.create("files")
    return place.table.index.drop(**given)  # type: ignore[arg-type]


def _resized(place: Place, **given: object) -> object:
    """Resize the buckets of a table that has consistent hashing."""
    engine = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.bucket.index.num.buckets": "2"}
    table = lakefmt.create_table(
        f"memory://resized/{next(_NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        table_type="mor",
        index="bucket",
        properties=engine,
        options=OPTIONS,
    )
    table.upsert(rows("k1"))
    return table.index.resize_buckets(**given)  # type: ignore[arg-type]


def _plot(place: Place) -> TablePlot:
    return place.table.plot


def _timeline(place: Place) -> TimelineView:
    return place.table.timeline


def _write_files(place: Place, **given: Any) -> object:
    context = given.pop("context") if "context" in given else place.context()
    try:
        if isinstance(context, lowlevel.WriteContext):
            assignment, batches = lowlevel.assign(context, rows("z"))[0]
            given = {"assignment": assignment, "batches": batches, **given}
        else:
            given = {"assignment": None, "batches": [], **given}
        return lowlevel.write_files(context, **given)
    finally:
        if isinstance(context, lowlevel.WriteContext):
            lowlevel.abort(context)


def _within_a_write(name: str) -> Callable[..., object]:
    def call(place: Place, **given: Any) -> object:
        context = given.pop("context") if "context" in given else place.context()
        try:
            return getattr(lowlevel, name)(context, **given)
        finally:
            if isinstance(context, lowlevel.WriteContext):
                lowlevel.abort(context)

    return call


def _begin(place: Place, **given: Any) -> object:
    given.setdefault("table", place.table)
    context = lowlevel.begin_write(**given)
    lowlevel.abort(context)
    return context


def _context_text() -> str:
    body = dict.fromkeys(("url", "owner", "schema_text", "file_schema_text"), "x") | {"action": "commit"}
    mappings: dict[str, object] = {name: {} for name in ("properties", "options", "commit_metadata")}
    flags = {"partial": False, "drop_duplicates": False}
    return json.dumps(
        {"version": 1, "instant": "20260101000000000", "operation": "UPSERT", **body, **mappings, **flags}
    )


def _folder_of_parquet(place: Place) -> str:
    written = io.BytesIO()
    pq.write_table(rows("k1", "k2"), written)
    MemoryStore(f"{place.space}-in").put("a.parquet", written.getvalue())
    return f"memory://{place.space}-in"


_FILTER: Argument = lambda place: "id = 'k1'"  # noqa: E731


def _partition_field(name: str) -> Callable[..., object]:
    return lambda place, **given: getattr(lakefmt, name)(**given)


_ROWS: Argument = lambda place: rows("k1", "new")  # noqa: E731
_DATA = {"data": _ROWS}

ENTRY_POINTS: dict[str, EntryPoint] = {
    "lakefmt.create_table": EntryPoint(
        lambda place, **given: lakefmt.create_table(**given),
        {
            "path": lambda place: f"memory://{place.space}/made",
            "data": _ROWS,
            "record_key": lambda place: "id",
        },
        ("data",),
    ),
    "lakefmt.write_table": EntryPoint(
        lambda place, **given: lakefmt.write_table(**given),
        {
            "path": lambda place: f"memory://{place.space}/written",
            "data": _ROWS,
            "record_key": lambda place: "id",
        },
        ("data",),
    ),
    "lakefmt.convert": EntryPoint(
        lambda place, **given: lakefmt.convert(**given),
        {
            "source": _folder_of_parquet,
            "path": lambda place: f"memory://{place.space}/converted",
            "record_key": lambda place: "id",
        },
    ),
    "lakefmt.open_table": EntryPoint(lambda place, **given: lakefmt.open_table(**given), {"path": lambda p: p.url}),
    **{
        f"lakefmt.{name}": EntryPoint(_partition_field(name), {"column": lambda place: "ts"})
        for name in ("year", "month", "day", "hour")
    },
    "lakefmt.register_merger": EntryPoint(
        lambda place, **given: lakefmt.register_merger(**given),
        {"name": lambda place: "hostile", "function": lambda place: lambda older, newer: newer},
    ),
    **{
        f"Table.{name}": _verb(name, _DATA, ("data",))
        for name in ("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
    },
    "Table.append": _verb("append", _DATA, ("data",)),
    # That a row is for another partition than those named is seen while it is written.
    "Table.overwrite": replace(_verb("overwrite", _DATA, ("data",)), leaves=True),
    "Table.advise": _verb("advise"),
    "Table.stream": EntryPoint(_stream_and_close),
    "Table.consumers": _shown(_table, "consumers"),
    "TableConsumers.list": _on(_consumers, "list"),
    "TableConsumers.reset": _on(_consumers, "reset", {"id": lambda place: "report"}),
    "TableConsumers.delete": _on(_consumers, "delete", {"id": lambda place: "report-*"}),
    "Table.as_of": _verb("as_of", {"when": lambda place: place.first}),
    "Table.expire_partitions": _verb("expire_partitions", {"older_than": lambda place: timedelta(days=1)}),
    "Table.tags": _shown(_table, "tags"),
    "TableTags.create": _on(_tags, "create", {"name": lambda place: "first"}),
    "TableTags.list": _on(_tags, "list"),
    "TableTags.delete": EntryPoint(_tagged("delete"), {"name": lambda place: "good"}),
    "TableTags.restore": EntryPoint(_tagged("restore"), {"name": lambda place: "good"}),
    "TableTags.create_daily": _on(_tags, "create_daily"),
    "Table.update": _verb("update", {"filter": _FILTER, "values": lambda place: {"note": "new"}}),
    "Table.delete": _verb("delete", {"what": lambda place: ["k1"]}, ("what",)),
    "Table.delete_partitions": _verb("delete_partitions", {"partitions": lambda place: ["city=sf"]}),
    **{
        f"Table.{name}": _verb(name)
        for name in ("snapshot", "read", "explain", "file_groups", "check", "savepoint", "clean", "count", "head")
    },
    **{f"Table.{name}": _verb(name) for name in ("archive", "to_pandas", "to_polars", "files", "history")},
    "Table.dataset": _gathered(_verb("dataset"), "to_table"),
    "Table.scan_polars": _gathered(_verb("scan_polars"), "collect"),
    "Table.schema_history": _verb("schema_history"),
    "Table.sync": _verb("sync", {"catalog": lambda place: MemoryCatalog()}),
    "Table.merge": EntryPoint(_merged, {"source": _ROWS}, ("source",)),
    "Table.erase": EntryPoint(_erased, {"what": lambda place: ["k1"]}, ("what",)),
    "Table.scan": _drained(_verb("scan")),
    "Table.incremental": _verb("incremental", {"start": lambda place: "000"}),
    "Table.changes": _verb("changes", {"start": lambda place: "000"}),
    "Table.to_duckdb": _verb("to_duckdb", {"connection": lambda place: duckdb.connect(), "name": lambda place: "rows"}),
    "Table.repair": _verb("repair", {"plan": lambda place: place.table.check().plan}),
    "Table.upgrade": _verb("upgrade", {"to": lambda place: 9}),
    "Table.rollback": _verb("rollback", {"instant": lambda place: place.newest}),
    "Table.restore": _verb("restore", {"instant": lambda place: place.first}),
    "Table.delete_savepoint": _verb("delete_savepoint", {"instant": lambda place: place.first}),
    "Table.compact": _verb("compact"),
    "Table.cluster": _verb("cluster"),
    "Table.open_stream": EntryPoint(_open_and_close),
    "Table.open_stream_async": _verb("open_stream_async"),
    "Table.recover_streams": _verb("recover_streams"),
    "Table.vacuum": _verb("vacuum", {"orphans": lambda place: True}),
    "Table.sort_on_write": _verb("sort_on_write", {**_DATA, "columns": lambda place: ["ts"]}, ("data",)),
    **{f"Table.{name}": _verb(name) for name in ("partitions", "partition_stats", "stats", "savepoints", "services")},
    **{
        f"Table.{name}": _shown(_table, name)
        for name in (
            "schema",
            "config",
            "properties",
            "timeline",
            "index",
            "alter",
            "client",
            "streams",
            "undo",
            "plot",
        )
    },
    **{f"Snapshot.{name}": _shown(_snapshot, name) for name in ("schema", "instant", "client", "state")},
    "Snapshot.read": _on(_snapshot, "read"),
    "Snapshot.scan": _drained(_on(_snapshot, "scan")),
    "Snapshot.file_slices": _on(_snapshot, "file_slices"),
    "TableIndexes.explain": _on(_index, "explain", {"keys": lambda place: ["k1"]}, ("keys",)),
    "TableIndexes.name": _shown(_index, "name"),
    "TableIndexes.list": _on(_index, "list"),
    "TableIndexes.create": _on(_index, "create", {"kind": lambda place: "files"}),
    "TableIndexes.drop": EntryPoint(_dropped, {"name": lambda place: "files"}),
    "TableIndexes.check": _on(_index, "check"),
    "TableIndexes.resize_buckets": EntryPoint(_resized),
    "TableIndexes.schedule": _on(_index, "schedule", {"kind": lambda place: "record_index"}),
    "TableIndexes.run": _on(_index, "run"),
    "TableAlter.add_column": _on(
        _alter, "add_column", {"name": lambda place: "more", "type": lambda place: pa.int64()}
    ),
    "TableAlter.drop_column": _on(_alter, "drop_column", {"name": lambda place: "note"}),
    "TableAlter.rename_column": _on(
        _alter, "rename_column", {"old": lambda place: "note", "new": lambda place: "remark"}
    ),
    "TableAlter.update_column": _on(
        _alter, "update_column", {"name": lambda place: "note", "comment": lambda place: "why"}
    ),
    **{f"TablePlot.{name}": _on(_plot, name) for name in ("timeline", "layout", "write_cost")},
    **{f"TimelineView.{name}": _on(_timeline, name) for name in ("with_archived", "to_arrow")},
    "TimelineView.load": EntryPoint(
        lambda place, **given: TimelineView.load(
            place.table.client, **{k: v for k, v in given.items() if k != "client"}
        )
    ),
    **{f"TimelineView.{name}": _shown(_timeline, name) for name in ("entries", "timeline")},
    "lowlevel.begin_write": EntryPoint(_begin),
    "lowlevel.assign": EntryPoint(_within_a_write("assign"), _DATA, ("data",)),
    "lowlevel.write_files": EntryPoint(_write_files, leaves=True),
    "lowlevel.commit": EntryPoint(_within_a_write("commit"), {"statuses": lambda place: []}),
    "lowlevel.abort": EntryPoint(_within_a_write("abort")),
    "WriteContext.from_json": EntryPoint(
        lambda place, **given: lowlevel.WriteContext.from_json(**given), {"text": lambda place: _context_text()}
    ),
    "WriteContext.to_json": EntryPoint(lambda place: lowlevel.WriteContext.from_json(_context_text()).to_json()),
}


def public_entry_points() -> dict[str, object]:
    """Return what somebody can call or look at: the functions of the modules, and the members of the classes."""
    found: dict[str, object] = {}
    for where, face in {"lakefmt": lakefmt, "lowlevel": lowlevel}.items():
        values = {name: getattr(face, name) for name in face.__all__}
        found |= {f"{where}.{name}": value for name, value in values.items() if inspect.isfunction(value)}
    for cls in (Table, lakefmt.Snapshot, TableIndexes, TableTags, TableConsumers, TableAlter, TablePlot, TimelineView):
        own = [base for base in cls.__mro__ if base.__module__.startswith("lakefmt.")]
        names = {name for base in own for name in (*vars(base), *base.__annotations__) if not name.startswith("_")}
        found |= {f"{cls.__name__}.{name}": getattr(cls, name, None) for name in sorted(names)}
    found |= {f"WriteContext.{name}": getattr(lowlevel.WriteContext, name) for name in ("from_json", "to_json")}
    return found


def arguments_of(name: str, entry: object) -> list[str]:
    """Return the names of the arguments that an entry point takes; keyword arguments that stand for others spelt out."""
    if not callable(entry):
        return []
    found: list[str] = []
    for argument in inspect.signature(entry).parameters.values():
        if argument.kind is not inspect.Parameter.VAR_KEYWORD:
            found.append(argument.name)
        elif argument.name == "call" and "ReadOptions" not in str(argument.annotation):
            found += sorted(ARGUMENTS)
        else:
            found += [each for each in inspect.signature(Table.read).parameters if each != "self"]
    return [each for each in found if each not in ("self", "cls")]
