"""Write one assigned base file and its change file, in any process, any number of times.

The assignment fixes the name, and the file appears by put-if-absent: a second attempt adopts the file of the first. It
writes nothing but its own marker and its own new file.

A base file that is rewritten gets a change file, which is written first (docs/format.md, Change files). New and replaced
file groups need none: readers derive their changes from the commit. On merge-on-read tables readers derive changes from logs
and the slices below them.

The files of one write share a thread pool (:class:`WorkerPool`): Arrow and NumPy release the interpreter's lock. The merged
rows of a large file are stored part by part: one is encoded while the next is merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.base_writer import grown_filter, new_filter, row_group_bytes, rows_per_row_group
from lakefmt._core.filegroups.merge import (
    MOST_ROWS_OF_A_PIECE,
    PLACE,
    Incoming,
    Merged,
    merge_in_order,
    merge_in_parts,
    merge_into_base,
    rows_in_file_order,
    sum_of_parts,
)
from lakefmt._core.filegroups.model import BaseFile, join_path
from lakefmt._core.filegroups.ordering import has_order
from lakefmt._core.filegroups.reader import BaseFileReader, InSchema, KnownFooter
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.formats.parquet.base_file import (
    BaseFileFooter,
    BaseFileWriter,
    ColumnTraits,
    KeySummary,
    appended,
    key_footers,
    key_range,
    same_text,
    without_unused,
)
from lakefmt._core.formats.parquet.duplicate_columns import Pages, keepable_chunks
from lakefmt._core.schema import with_meta_columns
from lakefmt._core.sorting import FileKeys, row_memory, sort_stream, widened
from lakefmt._core.storage.api import PutOutcome, SupportsBeginFlush
from lakefmt._core.timeline.observer import FileKeyChange, keys_of, without
from lakefmt._core.values import FILE_NAME, META_COLUMNS, RECORD_KEY, WriteOperation, WriteStat
from lakefmt._core.write.commit.key_stats import MOST_HASHES, hash_keys
from lakefmt._core.write.context import BoundContext, FileAssignment, WriteStatus, prepare
from lakefmt._core.write.files.meta_columns import POSITION, MetaColumns, routed_deletes
from lakefmt.errors import CorruptFile, InternalError, InvalidInputError, StorageError, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.filegroups.cdc import ChangedRows

__all__ = [
    "FileInProgress",
    "KeptColumns",
    "RowFacts",
    "WorkerPool",
    "append_rows",
    "cdc_stats",
    "incoming_rows",
    "key_change_of",
    "log_changes",
    "log_no_changes",
    "may_be_merged_in_parts",
    "merge_facts",
    "merge_rows",
    "new_keys",
    "refuse_silent_rewrites",
    "results",
    "rule_of_rows",
    "store_parts",
    "write_assigned",
]

U = TypeVar("U")


def results(works: Iterable[Future[U]]) -> list[U]:
    """Wait for works and return what they made, in their order; the first error is raised."""
    return [work.result() for work in works]


class WorkerPool:
    """A thread pool. On exit, queued tasks are cancelled and running ones are waited for.

    Threads that end give back what Arrow's allocator keeps for each of them.

    Args:
        threads: how many; with one, a work is done where it is given.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, work: Callable[..., U], *arguments: object) -> Future[U]:
        """Have a work done; the answer holds its result, or its error, which with one thread is raised at once."""
        if self._pool is not None:
            return self._pool.submit(work, *arguments)
        done: Future[U] = Future()
        done.set_result(work(*arguments))
        return done


#: What a base file's own count says of its change file.
_CDC_BYTES = "cdc_bytes"


def log_changes(bound: BoundContext, assignment: FileAssignment, base: pa.Table, merged: Merged) -> dict[str, int]:
    """Write down what a merge changed, where the table wants it; return what counts of it.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    from lakefmt._core.filegroups.cdc import changes_of_merge

    return _write_changes(bound, assignment, lambda: changes_of_merge(base, merged))


def log_no_changes(bound: BoundContext, assignment: FileAssignment, rows: pa.Table) -> dict[str, int]:
    """Write down that a rewrite changes no row, where the table wants it: Spark asks for a change file all the same.

    Args:
        bound: the write.
        assignment: the rewritten file.
        rows: its rows, for their columns.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    from lakefmt._core.filegroups.cdc import ChangedRows

    none = rows.slice(0, 0)
    return _write_changes(bound, assignment, lambda: ChangedRows(none, none, none, none))


def _write_changes(
    bound: BoundContext, assignment: FileAssignment, changes: Callable[[], ChangedRows]
) -> dict[str, int]:
    from lakefmt._core.filegroups.cdc import write_change_file

    if bound.cdc is None:
        return {}
    size = write_change_file(
        bound.store,
        _change_file_path(bound, assignment),
        changes(),
        mode=bound.cdc,
        instant=bound.instant,
        table_schema=bound.context.schema_text,
        settings=bound.settings,
    )
    return {_CDC_BYTES: size}


def _change_file_path(bound: BoundContext, assignment: FileAssignment) -> str:
    from lakefmt._core.filegroups.cdc import cdc_file_name

    parsed = parse_base_file(assignment.file_name)
    token = f"{assignment.sequence}-0-0" if parsed is None else parsed.write_token
    return join_path(assignment.partition, cdc_file_name(assignment.file_id, bound.instant, token))


def cdc_stats(bound: BoundContext, assignment: FileAssignment, counts: Mapping[str, int]) -> dict[str, object]:
    """Return what the commit's entry for a base file says of its change file."""
    return {"cdcStats": {_change_file_path(bound, assignment): counts[_CDC_BYTES]}} if _CDC_BYTES in counts else {}


def refuse_silent_rewrites(bound: BoundContext) -> None:
    """Raise where rows would be changed without the change data that the table promises.

    Raises:
        UnsupportedFeature: the table captures changes.
    """
    if bound.cdc is not None:
        raise UnsupportedFeature(
            "hoodie.table.cdc.enabled=true: this repair would change rows in a way that change data cannot "
            "tell (they name keys: one of two rows with a key, or rows of a damaged file). Nothing was changed"
        )


def key_change_of(assignment: FileAssignment, merged: Merged, keys: pa.ChunkedArray) -> FileKeyChange:
    """Return the keys that a rewritten file has and the assigned base file has not, and the reverse.

    Args:
        assignment: the file.
        merged: what became of the rows.
        keys: of all rows of the file, the new ones last.
    """
    added, left = keys_of(merged.inserted_keys), keys_of(merged.removed_keys)
    if len(added) and not assignment.match_keys:
        # Rows that are appended may have keys that are stored.
        added = _few_without(added, keys.slice(0, len(keys) - len(added)))
    if len(left):
        # Of several rows with one key some may stay.
        left = _few_without(left, keys)
    return FileKeyChange(None if assignment.base is None else assignment.base.path, added, left)


def new_keys(keys: pa.ChunkedArray | None) -> FileKeyChange | None:
    """Return what the first file of a file group has; None: its keys are not at hand."""
    return None if keys is None else FileKeyChange(None, keys_of(keys), pa.array([], pa.string()))


def _few_without(few: pa.Array, keys: pa.ChunkedArray) -> pa.Array:
    """Return the values of a short array that are not in a long one."""
    return without(few, keys.filter(pc.is_in(keys, value_set=few)))


class KeptColumns:
    """The pages of a base file that may go on into the file that replaces it.

    Args:
        reader: reads the base file.
        base: the base file, written by lakefmt.
        footer: its footer.
        schema: the columns of the new file.
        codec: the compression of the new file.
    """

    def __init__(
        self, reader: BaseFileReader, base: BaseFile, footer: KnownFooter, schema: pa.Schema, codec: str
    ) -> None:
        self._reader, self._base = reader, base
        self._rows = [footer.metadata.row_group(n).num_rows for n in range(footer.metadata.num_row_groups)]
        self._chunks = keepable_chunks(footer.metadata, schema, codec, base.size) if reader.is_local else []

    def pages(self, merged: Merged) -> Mapping[str, Pages]:
        """Return the pages of the columns that a merge has left as they are.

        Raises:
            CorruptFile: the base file ends before they do.
        """
        if merged.group is None or not merged.unchanged or not self._chunks:
            return {}
        if self._rows[merged.group] != merged.table.num_rows:  # never pages beside other rows
            return {}
        notes = {name: note for name, note in self._chunks[merged.group].items() if name in merged.unchanged}
        return self._reader.pages(self._base, notes)


def store_parts(
    parts: Iterable[Merged], store: Callable[[Merged], None], *, beside: bool
) -> tuple[Merged, pa.ChunkedArray]:
    """Store the rows of each part, in their order; return the counts of all of them, and their keys.

    Args:
        parts: merged rows, made while they are asked for.
        store: writes the rows of a part; it is called once at a time.
        beside: it is called in another thread, while the next part is made.
    """
    done: list[Merged] = []
    keys: list[pa.Array] = []
    stored: Future[None] | None = None
    with WorkerPool(2 if beside else 1) as writer:
        for part in parts:
            if stored is not None:
                stored.result()  # no more than one part waits
            stored = writer.submit(store, part)
            keys += part.table.column(RECORD_KEY).chunks
            done.append(replace(part, table=part.table.schema.empty_table()))  # a slice would hold all rows
            del part  # else it would be held while the next one is made
        if stored is not None:
            stored.result()
    return sum_of_parts(done), pa.chunked_array(keys, pa.string())


#: A filter takes eight times its size while it is made. For this number of keys that is 20 MB: what the rows took then goes
#: back to the system first. After every file that would cost a fifth of an upsert, in pages that are asked for again.
_MANY_FILTERED_KEYS = 500_000
#: From this size on pages are taken from a rewritten file where their column has not changed.
_LARGE_FILE_BYTES = 1 << 20
#: Of a new file no more keys are kept until the commit: reading them again costs little beside writing them.
_MOST_NEW_KEYS = 100_000
#: Footer entry by which a second attempt learns what the first one counted.
STAT_KEY = "lakefmt.write_stat"
#: In that entry: which rows it was given.
_DIGEST_FIELD = "digest"


def write_assigned(
    bound: BoundContext,
    assignment: FileAssignment,
    batches: Iterable[pa.Table],
    *,
    alone: bool = False,
    held: bool = True,
    known_footer: KnownFooter | None = None,
    announced: bool | None = None,
) -> WriteStatus:
    """Write the assigned file from routed rows (each with its record key column), or adopt the one that is there.

    Args:
        bound: the write.
        assignment: the file.
        batches: its rows.
        alone: no other file is written beside it, so that its columns may be read by several threads. Otherwise the
            files share the threads: each one's memory is then used again for the next.
        held: the rows may all be held at once; False: those of a file that is rewritten wait on the disk
            (:func:`may_be_merged_in_parts` has to be true of it).
        known_footer: the footer of the assigned base file, where it has been read.
        announced: what :class:`~lakefmt._core.write.context.Announcements` said of the write's files.

    Raises:
        InternalError: more or fewer rows came than were assigned.
        StorageError: the store failed; the call may be repeated.
    """
    if assignment.log is not None:
        from lakefmt._core.write.files.log_payloads import write_log_files  # brings the formats of logs along

        # It may have rolled over into several files: which of them are there is seen one by one.
        rows = pa.concat_tables(batches)
        return write_log_files(bound, [assignment], [rows.num_rows], rows, announced=announced)[0]
    if not prepare(bound, assignment, announced=announced):
        adopted = adopt(bound, assignment)
        if adopted is not None:
            return adopted
    with ExitStack() as stack:
        file = FileInProgress(bound, assignment, stack)
        if assignment.base is None:
            for batch in batches:
                append_rows(file, batch)
        elif held:
            merge_rows(file, pa.concat_tables(batches), use_threads=alone, known_footer=known_footer)
        else:
            _merge_many_rows(file, batches, held=False, use_threads=alone, known_footer=known_footer)
        return file.finish()


def adopt(bound: BoundContext, assignment: FileAssignment) -> WriteStatus | None:
    """Return the status of a file that an earlier attempt wrote, None when there is none."""
    info = bound.store.info(assignment.path)
    if info is None:
        return None
    written = BaseFile(assignment.partition, assignment.file_name, assignment.file_id, "", bound.instant, info.size)
    footer = BaseFileReader(bound.store).footer(written)
    try:
        counts = json.loads(footer.entries[STAT_KEY])
        if counts.pop(_DIGEST_FIELD, assignment.digest) != assignment.digest:
            raise InvalidInputError(
                f"{assignment.path}: a second attempt brings other rows than the first one: the input of this write is not "
                "repeatable; store it first (a checkpoint, a table), then write it"
            )
        counts = {name: int(count) for name, count in counts.items()}
        ends = _ends_or_none(footer.min_key, footer.max_key)
        return _write_status(bound, assignment, counts, info.size, ends, adopted=True)
    except InvalidInputError:  # a ValueError, too
        raise
    except (KeyError, ValueError, TypeError, AttributeError):
        raise CorruptFile(f"{assignment.path} exists and was not written by this write") from None


@dataclass(frozen=True, slots=True, eq=False)
class RowFacts:
    """What became of rows that were routed to a file, and the keys that it has of them.

    Attributes:
        routed: how many rows were routed.
        counts: how many of them were inserts, updates and so on.
        keys: those of the rows that the file has, in its order.
        key_range: the smallest and the largest of these keys, where that is known.
        bloom: the filter of all keys of the file, where it has been made.
        change: the keys that a rewritten file gained and lost, where they are recorded.
    """

    routed: int
    counts: Mapping[str, int]
    keys: pa.ChunkedArray
    key_range: tuple[str, str] | None = None
    bloom: BloomFilter | None = None
    change: FileKeyChange | None = None


class FileInProgress:
    """A base file that is being written; nothing of it is visible before :meth:`finish`.

    Attributes:
        bound: the write.
        assignment: the file.
        schema: the columns of the rows that fill it.
        meta: completes new rows with their meta columns.
        sink: takes the bytes of the file, and puts it.
        has_keys: it has keys, and footers about them; without meta columns it has neither (docs/format.md, Meta columns).
    """

    def __init__(self, bound: BoundContext, assignment: FileAssignment, stack: ExitStack) -> None:
        self.bound, self.assignment = bound, assignment
        self.schema, made = bound.file_schema, bound.virtual_columns
        if made is not None:
            self.schema = with_meta_columns(made.schema)
        self.has_keys = made is None or not made.makes_keys
        self.meta = MetaColumns(bound.instant, assignment, may_be_coded=made is None)
        self.sink = stack.enter_context(bound.store.create(assignment.path, durable=bound.durable))
        self._writer = BaseFileWriter(self.sink.file, bound.file_schema, bound.codec, bound.codec_level)
        stack.callback(self._writer.discard)
        self._keys = FileKeys()
        stack.callback(self._keys.close)
        self._rows_in = 0
        self._counts = dict.fromkeys(("inserts", "updates", "deletes", "late", "ignored"), 0)
        self._bloom: BloomFilter | None = None
        self._key_change: FileKeyChange | None = None
        self._ends: tuple[str, str] | None = None
        self._key_hashes: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self.sink.size

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._writer.num_rows

    @property
    def held_bytes(self) -> int:
        """Bytes of keys that are held until the file is finished."""
        return self._keys.held_bytes

    def spill(self) -> None:
        """Let the keys wait on the disk.

        Raises:
            StorageError: the temporary directory could not take them.
        """
        self._keys.spill()

    def fill(
        self,
        rows: pa.Table,
        facts: RowFacts | None = None,
        *,
        traits: ColumnTraits | None = None,
        kept: Mapping[str, Pages] | None = None,
    ) -> None:
        """Write the next rows of the file.

        Args:
            rows: the rows, with all columns of :attr:`schema`.
            facts: what became of the routed rows; None: :meth:`note` is told of all rows together.
            traits: what is known of the columns, where these are all rows of the file.
            kept: pages of the base file, of columns that a merge has left as they are.
        """
        if facts is not None:
            self.note(facts)
        if self.bound.virtual_columns is not None:
            rows = self.bound.virtual_columns.stored(rows, self.assignment.partition, self.bound.file_schema)
        self._writer.write(rows, traits=traits, kept=kept)
        if isinstance(self.sink, SupportsBeginFlush):
            self.sink.begin_flush()  # of a large file, while what follows is encoded

    def note(self, facts: RowFacts) -> None:
        """Count routed rows, and take the keys of rows that the file has of them."""
        self._rows_in += facts.routed
        for name, count in facts.counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        self._bloom, self._key_change = facts.bloom, facts.change
        if self.has_keys:
            # Keys of new rows are part of something larger, which would stay with them.
            self._keys.add(facts.keys, copy=self.assignment.base is None, ends=facts.key_range)

    def finish(self) -> WriteStatus:
        """Give the file its footers and its name.

        Raises:
            InternalError: rows were lost or doubled on the way.
            StorageError: the store does not say whether the file is there.
        """
        self.close()
        return self.placed(self.sink.put_if_absent())

    def close(self) -> None:
        """Give the file its footers.

        Raises:
            InternalError: rows were lost or doubled on the way.
        """
        expected = self.assignment.num_rows
        if expected is not None and self._rows_in != expected:
            raise InternalError(
                f"{self.assignment.path}: {expected} rows were assigned and {self._rows_in} came; nothing is written"
            )
        low, high = self._keys.range
        summary = KeySummary(low, high, self._filter())
        self._ends, self._key_hashes = _ends_or_none(low, high), self._hashes()
        self._counts = {"rows_in": self._rows_in, "rows": self.num_rows, **self._counts}
        digest = {} if self.assignment.digest is None else {_DIGEST_FIELD: self.assignment.digest}
        footers = key_footers(summary, self.bound.context.file_schema_text)
        footers[STAT_KEY] = json.dumps({**self._counts, **digest})
        self._writer.close(footers)
        if self.bound.written_keys is not None and self.assignment.base is None:
            self._key_change = new_keys(self._keys.few(_MOST_NEW_KEYS))
        self._keys.close()

    def placed(self, outcome: PutOutcome) -> WriteStatus:
        """Return the status of the closed file, or of the one that is there, by what putting it said.

        Raises:
            StorageError: the store does not say whether the file is there.
        """
        written_keys = self.bound.written_keys
        if outcome is PutOutcome.DONE:
            if written_keys is not None and self._key_change is not None:
                written_keys.keep(self.assignment.path, self._key_change)
            return _write_status(
                self.bound, self.assignment, self._counts, self.sink.size, self._ends, self._key_hashes
            )
        adopted = adopt(self.bound, self.assignment)
        if adopted is None:
            raise StorageError(f"the store does not say whether {self.assignment.path} was written", transient=True)
        return adopted

    def _filter(self) -> BloomFilter | None:
        if not self.has_keys or not self.bound.writes_filters:
            return None
        # Rows that mark themselves deleted are left out: then the filter that was made is of too many keys.
        if self._bloom is not None and (self.assignment.base is not None or self._bloom.num_keys == len(self._keys)):
            return self._bloom
        if len(self._keys) > _MANY_FILTERED_KEYS:
            pa.default_memory_pool().release_unused()
        bloom = new_filter(self.bound.settings, len(self._keys))
        self._keys.add_to(bloom, row_memory(self.bound.settings.integer("lakefmt.write.window.bytes")))
        return bloom

    def _hashes(self) -> bytes | None:
        """Return the hashes of the keys, when writers beside this one may ask for them (not for generated ones), and they are few."""
        if not self.bound.beside or not self.bound.config.record_key_fields:
            return None
        keys = self._keys.few(MOST_HASHES)
        return None if keys is None else hash_keys(keys)


def append_rows(file: FileInProgress, rows: pa.Table) -> None:
    """Fill a new file with routed rows; those that mark themselves deleted are counted and left out."""
    step = rows_per_row_group(rows)
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        deletes = routed_deletes(file.bound, part)
        stays = part.filter(from_numpy(~deletes)) if deletes.any() else part
        complete = file.meta.add_to(stays, file.schema)
        counts = {"inserts": stays.num_rows, "ignored": part.num_rows - stays.num_rows}
        file.fill(complete, RowFacts(part.num_rows, counts, complete.column(RECORD_KEY)))


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """A base file that is read while the file that replaces it is filled.

    Attributes:
        file: the new file.
        schema: of the rows of both files, without the file name column, which is as long as the rest of a row and is set anew.
        footer: of the base file.
        is_cut: whether the base file is read in several parts.
        bases: the parts.
        kept_columns: the pages of the base file that may be copied into the new file; None: no page may.
    """

    file: FileInProgress
    schema: pa.Schema
    footer: BaseFileFooter
    is_cut: bool
    bases: InSchema
    kept_columns: KeptColumns | None

    def incoming(self, rows: pa.Table) -> Incoming:
        """Return routed rows, completed, in the way in which a merge takes them."""
        return incoming_rows(self.file.bound, self.file.meta.add_to(rows, self.schema), rows)

    def store(self, merged: Merged) -> None:
        """Write merged rows, with the name of the file."""
        name = same_text(self.file.assignment.file_name, merged.table.num_rows)
        index = self.file.schema.get_field_index(FILE_NAME)
        rows = without_unused(merged.table).add_column(index, FILE_NAME, name)
        self.file.fill(rows, kept=None if self.kept_columns is None else self.kept_columns.pages(merged))


@contextmanager
def _rewriting(
    file: FileInProgress, part_bytes: int | None, *, use_threads: bool, known_footer: KnownFooter | None
) -> Iterator[_Rewrite]:
    """Open the base file that a new file replaces.

    Args:
        file: the new file.
        part_bytes: its rows come in parts of about this number of bytes; None: as one part.
        use_threads: columns are read by several threads.
        known_footer: that of the base file, where it has been read.
    """
    bound, base_file = file.bound, file.assignment.base
    if base_file is None:
        raise InternalError("there is no base file to rewrite")
    reader = BaseFileReader(bound.store, bound.virtual_columns)
    schema = file.schema.remove(file.schema.get_field_index(FILE_NAME))
    coded = _coded_columns(bound, schema)
    with reader.in_parts(
        base_file, schema.names, part_bytes, use_threads=use_threads, coded=coded, known_footer=known_footer
    ) as parts:
        footer = parts.known.footer
        kept_columns: KeptColumns | None = None
        # Pages of other writers may lack checksums; those of a small file are encoded as quickly.
        if STAT_KEY in footer.entries and base_file.size >= _LARGE_FILE_BYTES and bound.virtual_columns is None:
            kept_columns = KeptColumns(reader, base_file, parts.known, bound.file_schema, bound.codec)
        yield _Rewrite(file, schema, footer, parts.is_cut, InSchema(schema, parts.parts), kept_columns)


def merge_rows(
    file: FileInProgress, rows: pa.Table, *, use_threads: bool = False, known_footer: KnownFooter | None = None
) -> None:
    """Fill a file with the rows of its base file, and routed rows merged in."""
    bound, assignment = file.bound, file.assignment
    may_be_cut = may_be_merged_in_parts(bound, assignment)
    if may_be_cut and rows.num_rows > MOST_ROWS_OF_A_PIECE:
        _merge_many_rows(file, [rows], held=True, use_threads=use_threads, known_footer=known_footer)
        return
    part_bytes = row_group_bytes() if may_be_cut else None
    with _rewriting(file, part_bytes, use_threads=use_threads, known_footer=known_footer) as rewrite:
        bases, incoming = rewrite.bases, rewrite.incoming(rows)

        def with_group(merged: Merged) -> Merged:
            return replace(merged, group=bases.group)  # of the part that was read last

        changes: Mapping[str, int] = {}
        if rewrite.is_cut:
            merges = merge_in_parts(bases, rewrite.footer.num_rows, incoming, rule_of_rows(bound, rows))
            merged, keys = store_parts(map(with_group, merges), rewrite.store, beside=use_threads)
        else:
            base = next(bases)
            merged = with_group(_merged(file, base, rows, incoming))
            keys = merged.table.column(RECORD_KEY)
            changes = changes if bound.cdc is None else log_changes(bound, assignment, base, merged)
            del base  # what is merged has values of its own
            rewrite.store(merged)
        _note_merge(file, merged, keys, rows.num_rows, rewrite.footer, changes)


def may_be_merged_in_parts(bound: BoundContext, assignment: FileAssignment) -> bool:
    """Return whether rows may be merged into a base file part by part.

    A merge function of the table's own is given all rows at once, and change data is made of all of them.
    """
    return (
        assignment.base is not None
        and assignment.log is None
        and assignment.match_keys
        and not bound.rule.is_own
        and bound.cdc is None
    )


def _merge_many_rows(
    file: FileInProgress,
    tables: Iterable[pa.Table],
    *,
    held: bool,
    use_threads: bool,
    known_footer: KnownFooter | None,
) -> None:
    """Fill a file with the rows of its base file and more routed rows than are completed at once (:func:`merge_in_order`).

    Args:
        file: it.
        tables: routed rows, one for each key.
        held: they are in memory; False: they wait on the disk, in the order of the stored rows, and may bring their places there.
        use_threads: columns are read by several threads.
        known_footer: that of the base file, where it has been read.

    Raises:
        StorageError: the temporary directory could not take the rows.
    """
    bound, base_file, counts = file.bound, file.assignment.base, list[int]()
    if base_file is None:
        raise InternalError("there is no base file to rewrite")

    def stored_keys() -> pa.ChunkedArray:
        reader = BaseFileReader(bound.store, bound.virtual_columns)
        rows, _ = reader.rows_and_footer(base_file, [RECORD_KEY], use_threads=False, known_footer=known_footer)
        return rows.column(RECORD_KEY)

    with ExitStack() as stack:
        ordered = _in_file_order(tables, stored_keys, counts)
        if not held:
            memory_bytes = bound.settings.integer("lakefmt.write.window.bytes")
            by_place = sort_stream(ordered, lambda rows: rows.column(PLACE).combine_chunks(), memory_bytes)
            ordered = stack.enter_context(closing(by_place))
        first = next(ordered)
        rewrite = stack.enter_context(
            _rewriting(file, row_group_bytes(), use_threads=use_threads, known_footer=known_footer)
        )
        bases, rule = rewrite.bases, rule_of_rows(bound, first)

        def incoming(rows: pa.Table) -> Incoming:
            return rewrite.incoming(rows.drop_columns([PLACE]))

        merges = merge_in_order(bases, rewrite.footer.num_rows, chain([first], ordered), incoming, rule)
        del first
        grouped = (replace(merged, group=bases.group if is_whole else None) for merged, is_whole in merges)
        merged, keys = store_parts(grouped, rewrite.store, beside=use_threads)
        _note_merge(file, merged, keys, sum(counts), rewrite.footer, {})


def _in_file_order(
    tables: Iterable[pa.Table], stored_keys: Callable[[], pa.ChunkedArray], counts: list[int]
) -> Iterator[pa.Table]:
    """Yield routed rows with their places in the base file, those of each table in this order; `counts` are told how many there are."""
    stored: pa.ChunkedArray | None = None
    for table in tables:
        counts.append(table.num_rows)
        left = table
        if POSITION in table.column_names:  # the look-up has found them, or not
            places = table.column(POSITION)
            plain, known = table.drop_columns([POSITION]), pc.greater_equal(places, 0)
            yield plain.append_column(PLACE, places).filter(known)
            left = plain.filter(pc.invert(known))
        if left.num_rows:
            stored = stored_keys() if stored is None else stored
            yield from rows_in_file_order(left, stored, MOST_ROWS_OF_A_PIECE)


def _note_merge(
    file: FileInProgress,
    merged: Merged,
    keys: pa.ChunkedArray,
    routed: int,
    footer: BaseFileFooter,
    changes: Mapping[str, int],
) -> None:
    """Tell a file what became of rows that were merged into its base file."""
    bloom, new_range = None, _ends_or_none(*key_range(merged.inserted_keys)) if merged.inserted else None
    if file.has_keys:
        inserted = merged.inserted_keys
        bloom = grown_filter(footer.bloom_filter(), footer.num_rows, len(keys), inserted, file.bound.settings)
    file.note(merge_facts(file, merged, keys, routed, footer, bloom, new_range, changes))


def merge_facts(
    file: FileInProgress,
    merged: Merged,
    keys: pa.ChunkedArray,
    routed: int,
    footer: BaseFileFooter,
    bloom: BloomFilter | None,
    new_range: tuple[str, str] | None,
    changes: Mapping[str, int] | None = None,
) -> RowFacts:
    """Return what became of rows that were merged into a base file.

    Args:
        file: the file that replaces the base file.
        merged: the rows.
        keys: those of all rows of the file, new ones last.
        routed: how many rows were routed.
        footer: that of the base file.
        bloom: the filter of all keys; None: it is made anew.
        new_range: the smallest and the largest of the keys that the base file lacks; None: there are none.
        changes: what counts of the change file.
    """
    counts = {
        "inserts": merged.inserted,
        "updates": merged.updated,
        "deletes": merged.deleted,
        "late": merged.late,
        "ignored": merged.ignored_deletes,
        **(changes or {}),
    }
    records = file.has_keys and file.bound.written_keys is not None
    change = key_change_of(file.assignment, merged, keys) if records else None
    old_range = None if merged.deleted else _ends_or_none(footer.min_key, footer.max_key)
    ends = widened(old_range, new_range) if footer.num_rows else None
    return RowFacts(routed, counts, keys, ends, bloom, change)


def _coded_columns(bound: BoundContext, schema: pa.Schema) -> set[str]:
    """Return the columns of text whose values are not needed while rows are merged and stored."""
    rule = bound.rule
    if rule.is_own or bound.virtual_columns is not None or bound.cdc is not None:
        return set()
    needed = {RECORD_KEY, *(name.split(".", 1)[0] for name in rule.stored.fields)}
    texts = (f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type))
    return {name for name in texts if name not in needed}


def _merged(file: FileInProgress, base: pa.Table, rows: pa.Table, incoming: Incoming) -> Merged:
    if file.assignment.match_keys:
        return merge_into_base(base, incoming, rule=rule_of_rows(file.bound, rows))
    complete, deletes = incoming.table, incoming.deletes
    stays = complete.filter(from_numpy(~deletes)) if deletes.any() else complete
    joined = appended(base, stays.select(base.column_names))
    return Merged(joined, stays.num_rows, 0, 0, 0, int(deletes.sum()), stays.column(RECORD_KEY))


def incoming_rows(bound: BoundContext, complete: pa.Table, rows: pa.Table) -> Incoming:
    """Return routed rows in the way in which a merge takes them.

    Args:
        bound: the write.
        complete: the rows with all columns of the file.
        rows: the rows as they were routed.
    """
    present = frozenset((*META_COLUMNS, *rows.column_names))
    columns = None if present.issuperset(complete.column_names) else present
    return Incoming(complete, routed_deletes(bound, rows), columns)


def rule_of_rows(bound: BoundContext, rows: pa.Table) -> MergeRule:
    """Return the rule by which routed rows are merged: without an event time the later write wins."""
    rule = bound.rule
    has_times = bound.operation is not WriteOperation.DELETE and has_order(rule.stored, rows.column_names)
    return rule if has_times else rule.without_order()


def _ends_or_none(low: str | None, high: str | None) -> tuple[str, str] | None:
    return None if low is None or high is None else (low, high)


def _write_status(
    bound: BoundContext,
    assignment: FileAssignment,
    counts: Mapping[str, int],
    size: int,
    keys: tuple[str, str] | None,
    hashes: bytes | None = None,
    *,
    adopted: bool = False,
) -> WriteStatus:
    base = assignment.base
    stat = WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=assignment.path,
        prev_commit="null" if base is None else base.instant,
        num_writes=counts["rows"],
        num_inserts=counts["inserts"],
        num_update_writes=counts["updates"],
        num_deletes=counts["deletes"],
        total_write_bytes=size,
        file_size_in_bytes=size,
        prev_base_file=None if base is None else base.name,
        extra={} if bound.cdc is None else cdc_stats(bound, assignment, counts),
    )
    late, ignored = counts["late"], counts["ignored"]
    return WriteStatus(bound.instant, stat, counts["rows_in"], late, ignored, adopted=adopted, keys=keys, hashes=hashes)
