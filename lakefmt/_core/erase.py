"""Erase rows for good: delete, compact, clean without older versions, make indexes anew, and look for what is left.

Every step may be repeated, so a call that failed or died is made again, with `traces`. A delete alone leaves the rows
in older file slices, logs, indexes and temporary files (docs/erase.md). What this module proves, it proves by the bytes
that the store holds afterwards, not by what the steps report.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.arguments import texts_argument
from lakefmt._core.check.run import rebuild_damaged
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.stored_keys import keyed_rows
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.commit import decode_commit, encode_commit
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import RECORD_KEY, CommitResult, Filter, TableType, printable
from lakefmt._core.write.commit.key_stats import KEY_HASHES_ENTRY, KEY_RANGES_ENTRY
from lakefmt.errors import ObjectNotFound, StateError

if TYPE_CHECKING:
    from lakefmt._core.check.vacuum import VacuumResult
    from lakefmt._core.compaction.clean_run import CleanResult
    from lakefmt._core.producers.stream.opening import Recovered
    from lakefmt._core.timeline.metadata_codec import Savepoint

__all__ = ["ErasureReport", "erase_rows", "find_traces"]

#: Only the newest file slice of each file group stays.
_NO_HISTORY: Final[Mapping[str, object]] = {
    "hoodie.clean.policy": "keep_latest_file_versions",
    "hoodie.clean.fileversions.retained": 1,
    "hoodie.clean.incremental.enabled": False,
    "lakefmt.clean.change.files": True,
}
#: Settings of a delete after which nothing else runs: the services follow one by one.
_ALONE: Final[Mapping[str, object]] = {"hoodie.clean.automatic": False}
#: Shorter texts are in every file: they are compared with whole values only.
_LEAST_CHARACTERS: Final = 5
_KEY_ENTRIES: Final = (KEY_RANGES_ENTRY, KEY_HASHES_ENTRY)
_GZIP: Final = b"\x1f\x8b\x08"
_PARQUET: Final = b"PAR1"
_MOST_SHOWN: Final = 5


class _Verbs(Protocol):
    """The verbs of a table that erasing is made of."""

    client: TableClient

    def read(self, *, filter: Filter = ..., meta_columns: bool = ...) -> pa.Table:
        """Read rows."""
        ...

    def delete(self, what: object, *, options: Mapping[str, object] | None = ...) -> CommitResult:
        """Delete rows."""
        ...

    def compact(self) -> object:
        """Merge logs."""
        ...

    def clean(self, *, options: Mapping[str, object] | None = ...) -> CleanResult:
        """Remove older file slices."""
        ...

    def vacuum(self, *, orphans: bool = ..., older_than: str | float = ...) -> VacuumResult:
        """Remove orphan files."""
        ...

    def savepoints(self) -> tuple[Savepoint, ...]:
        """Return the savepoints."""
        ...

    def recover_streams(self) -> list[Recovered]:
        """Commit what streams of dead writers have flushed."""
        ...


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure did and what its proof found; prints as a few lines.

    Attributes:
        num_deletes: rows that were deleted.
        files_removed: files with older states that were removed.
        files_searched: files whose bytes were searched afterwards.
        bytes_searched: their size.
        traces: the number of texts that were looked for.
        found: files that still hold one of the texts.
        unread: files whose content could not be decoded, and so was searched as raw bytes only.
    """

    num_deletes: int
    files_removed: int
    files_searched: int
    bytes_searched: int
    traces: int
    found: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True when every file was searched for at least one trace and none has it."""
        return bool(self.traces) and not self.found and not self.unread

    def __str__(self) -> str:
        lines = [
            f"erased {self.num_deletes:,} rows, removed {self.files_removed:,} files; looked for {self.traces:,} texts in "
            f"{self.files_searched:,} files, {self.bytes_searched:,} bytes: {'none is left' if self.is_clean else 'not proved'}"
        ]
        for title, names in (("still holds one", self.found), ("not decoded", self.unread)):
            lines += [f"  {title}: {printable(name)}" for name in names[:_MOST_SHOWN]]
            lines += [f"  … and {len(names) - _MOST_SHOWN:,} more"] if len(names) > _MOST_SHOWN else []
        return "\n".join(lines)


def erase_rows(table: _Verbs, what: object, traces: Sequence[str] | None) -> ErasureReport:
    """Erase rows of a table; see ``Table.erase``.

    Args:
        table: its verbs.
        what: as for ``Table.delete``.
        traces: texts that must not be left; None: the keys of the rows.

    Raises:
        StateError: a savepoint keeps older files, or a stream is open; nothing was deleted.
    """
    client = table.client
    _check_savepoints(table)
    _commit_streams(table)
    keys = list(_keys_of(table, what))
    needles = set(keys if traces is None else texts_argument(traces, "traces"))
    num_deletes = table.delete(what, options=_ALONE).num_deletes
    if keys and client.load_config().populate_meta_fields:
        # A record index names one copy of a key that is stored several times.
        num_deletes += table.delete(pc.field(RECORD_KEY).isin(keys), options=_ALONE).num_deletes
    if client.load_config().table_type is TableType.MERGE_ON_READ:
        table.compact()
    removed = table.clean(options=_NO_HISTORY).files_deleted
    removed += table.vacuum(orphans=True, older_than=0).files_deleted
    names = client.load_config().metadata_partitions
    if names:
        rebuild_damaged(client, names)
    _forget_keys(client, needles)
    found, unread, files, size = find_traces(client.store, needles)
    return ErasureReport(num_deletes, removed, files, size, len(needles), tuple(found), tuple(unread))


def _check_savepoints(table: _Verbs) -> None:
    savepoints = table.savepoints()
    if savepoints:
        times = ", ".join(str(each.instant) for each in savepoints[:_MOST_SHOWN])
        raise StateError(f"savepoints keep older files: delete those of {times} first (table.delete_savepoint)")


def _commit_streams(table: _Verbs) -> None:
    """Commit what streams of dead writers have flushed; the next stream would commit it after the delete."""
    opened = [each.stream for each in table.recover_streams() if each.left]
    if opened:
        raise StateError(f"streams are open, and may hold such rows: close {', '.join(opened[:_MOST_SHOWN])} first")


def _forget_keys(client: TableClient, traces: set[str]) -> None:
    """Take the smallest and largest key of each file, which spare readers a footer, out of the commits that hold a trace."""
    state = client.load()
    store, config = client.timeline_store(state.config), state.config
    encoded = [text.encode() for text in traces]
    for instant in state.timeline.commits:
        body = store.read_body(instant)
        commit = decode_commit(body, instant.file_name) if any(text in body for text in encoded) else None
        if commit is not None and KEY_RANGES_ENTRY in commit.extra_metadata:
            entries = {name: text for name, text in commit.extra_metadata.items() if name not in _KEY_ENTRIES}
            replaces = instant.action is Action.REPLACE_COMMIT
            rewritten = encode_commit(replace(commit, extra_metadata=entries), config.version, replaces)
            client.store.put(f"{store.directory}/{instant.file_name}", rewritten)


def _keys_of(table: _Verbs, what: object) -> Iterator[str]:
    """Return the record keys of the rows that a delete would remove, as they are stored."""
    if isinstance(what, str | pc.Expression):
        table_at = table.client.at(table.client.load())
        rows = keyed_rows(table_at, table.read(filter=what, meta_columns=True))
        yield from (str(key) for key in rows[RECORD_KEY].unique().to_pylist() if key is not None)
        return
    if isinstance(what, pa.Array | pa.ChunkedArray) and not pt.is_nested(what.type):
        yield from (str(key) for key in what.unique().to_pylist() if key is not None)
    elif isinstance(what, Sequence) and all(isinstance(each, str | int) for each in what):
        yield from map(str, what)


# ------------------------------------------------------------------------------------------------------------- proof


def find_traces(store: ObjectStore, traces: set[str]) -> tuple[list[str], list[str], int, int]:
    """Search every object of a table for texts, decoded where its format is known.

    Parquet files are read whole, with their statistics and metadata; what is gzipped in indexes is unpacked.

    Args:
        store: the table's store.
        traces: the texts. One of less than five characters is compared with whole values of columns only.

    Returns:
        The names that hold one, those that could not be decoded, the number of objects and their bytes.

    Example:
        >>> from lakefmt._core.storage.memory import MemoryStore
        >>> store = MemoryStore("doc-traces")
        >>> store.put("a", b"ann@example.org"), store.put("b", b"bob@example.org")
        (None, None)
        >>> find_traces(store, {"ann@example.org"})
        (['a'], [], 2, 30)
    """
    found, unread, count, size = list[str](), list[str](), 0, 0
    long = [re.escape(text.encode()) for text in traces if len(text) >= _LEAST_CHARACTERS]
    pattern = re.compile(b"|".join(long)) if long else None
    whole = pa.array(sorted(traces), pa.string())
    for info in store.list():
        try:
            data = store.read(info.name)
        except ObjectNotFound:
            continue  # a heartbeat or a lock that ended
        count, size = count + 1, size + len(data)
        holds = pattern is not None and any(pattern.search(part) for part in (info.name.encode(), *_unpacked(data)))
        for start in _parquet_starts(data):
            try:
                holds = holds or _rows_hold(data[start:], whole, long)
            except (pa.ArrowInvalid, OSError):
                unread.append(info.name)
        if holds:
            found.append(info.name)
    return found, unread, count, size


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the bytes, and what is gzipped in them."""
    yield data
    start = data.find(_GZIP)
    while start >= 0:
        with suppress(zlib.error):  # these three bytes begin something else
            yield zlib.decompressobj(31).decompress(data[start:])
        start = data.find(_GZIP, start + 1)


def _parquet_starts(data: bytes) -> list[int]:
    """Return where Parquet begins: at the start of a file; a log block is one in the middle, and is not decoded."""
    return [0] if data.startswith(_PARQUET) and data.endswith(_PARQUET) else []


def _rows_hold(data: bytes, whole: pa.Array, long: Sequence[bytes]) -> bool:
    file = pq.ParquetFile(io.BytesIO(data))
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group)
        for column in rows.columns:
            for chunk in column.chunks:
                for values in _texts(chunk):
                    if pc.any(pc.is_in(values, whole)).as_py():
                        return True
                    if long and pc.any(pc.match_substring_regex(values, b"|".join(long).decode())).as_py():
                        return True
    return False


def _texts(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the texts of a column, those inside structs, lists and maps included; bytes as texts where they are some."""
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    data_type = values.type
    if pt.is_struct(data_type):
        for inner in values.flatten():
            yield from _texts(inner)
    elif pt.is_map(data_type):
        yield from _texts(values.keys)
        yield from _texts(values.items)
    elif pt.is_list(data_type) or pt.is_large_list(data_type):
        yield from _texts(values.flatten())
    elif pt.is_string(data_type) or pt.is_large_string(data_type):
        yield values.cast(pa.string())
    elif pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_fixed_size_binary(data_type):
        # The pattern takes bytes as they are: latin-1 has a letter for each.
        yield pa.array([value.decode("latin-1") for value in values.drop_null().to_pylist()], pa.string())
    elif pt.is_integer(data_type):
        yield values.cast(pa.string())
