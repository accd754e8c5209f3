"""Writes one assigned base file, in any process, any number of times.

The assignment fixes the name, and the file appears by put-if-absent: a second attempt adopts the file of the first. It
writes nothing but its own marker and its own new file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.config.merge_rule import MergeRule
from lakefmt.data_classes import replace
from lakefmt.errors import CorruptFile, InternalError, InvalidInputError, StorageError
from lakefmt.filegroups.base_writer import grown_filter, new_filter, row_group_bytes, rows_per_row_group
from lakefmt.filegroups.merge.base import Incoming, Merged, merge_in_parts, merge_into_base
from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.ordering import has_order
from lakefmt.filegroups.reader import BaseFileReader, FileParts, InSchema, KnownFooter
from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.formats.parquet.base_file import (
    BaseFileFooter,
    BaseFileWriter,
    ColumnTraits,
    KeySummary,
    key_footers,
    key_range,
)
from lakefmt.formats.parquet.dictionary_columns import appended, same_text, without_unused
from lakefmt.formats.parquet.duplicate_columns import Pages
from lakefmt.schema import with_meta_columns
from lakefmt.sorting.external_sort import FileKeys, row_memory, widened
from lakefmt.sorting.written_keys import FileKeyChange
from lakefmt.storage.api import PutOutcome, SupportsBeginFlush
from lakefmt.values import (
    FILE_NAME,
    META_COLUMNS,
    RECORD_KEY,
    WriteOperation,
    WriteStat,
)
from lakefmt.write.bound_context import BoundContext, prepare
from lakefmt.write.commit.key_stats import MOST_HASHES, hash_keys
from lakefmt.write.context import FileAssignment, WriteStatus
from lakefmt.write.files.cdc import cdc_stats, log_changes
from lakefmt.write.files.key_changes import key_change_of, new_keys
from lakefmt.write.files.meta_columns import MetaColumns, routed_deletes
from lakefmt.write.files.part_storing import store_parts

if TYPE_CHECKING:
    from lakefmt.write.files.kept_columns import KeptColumns

__all__ = ["FileInProgress", "write_assigned"]


#: A filter takes eight times its size while it is made. For this number of keys that is 20 MB: what the rows took then goes
#: back to the system first. After every file that would cost a fifth of an upsert, in pages that are asked for again.
_MANY_KEYS = 500_000
#: From this size on pages are taken from a rewritten file where their column has not changed.
_LARGE_BYTES = 1 << 20
#: With fewer rows a column of one text is as quick without a dictionary.
_MANY_ROWS = 1000
#: Of a new file no more keys are kept until the commit: reading them again costs little beside writing them.
_MOST_NEW_KEYS = 100_000
#: Footer entry by which a second attempt learns what the first one counted.
STAT_KEY = "lakefmt.write_stat"
#: In that entry: which rows it was given.
_DIGEST = "digest"


def write_assigned(
    bound: BoundContext,
    assignment: FileAssignment,
    batches: Iterable[pa.Table],
    *,
    alone: bool = False,
    bloom: BloomFilter | None = None,
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
        bloom: of a new file, the filter of all its keys, where it has been made.
        known_footer: the footer of the assigned base file, where it has been read.
        announced: what :func:`~lakefmt.write.bound_context.announce` said of the write's files.

    Raises:
        InternalError: more or fewer rows came than were assigned.
        StorageError: the store failed; the call may be repeated.
    """
    if assignment.log is not None:
        from lakefmt.write.files.log_payloads import build_log_payloads, write_log  # brings the formats of logs along

        # It may have rolled over into several files: which of them are there is seen one by one.
        rows = pa.concat_tables(batches)
        (work,) = build_log_payloads(bound, [assignment], [rows.num_rows], rows)
        return write_log(bound, work, announced=announced)
    if not prepare(bound, assignment, announced=announced):
        adopted = adopt(bound, assignment)
        if adopted is not None:
            return adopted
    with ExitStack() as stack:
        file = FileInProgress(bound, assignment, stack, bloom)
        if assignment.base is None:
            for batch in batches:
                file.append(batch)
        else:
            file.rewrite(pa.concat_tables(batches), use_threads=alone, known_footer=known_footer)
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
        if counts.pop(_DIGEST, assignment.digest) != assignment.digest:
            raise InvalidInputError(
                f"{assignment.path}: a second attempt brings other rows than the first one: the input of this write is not "
                "repeatable; store it first (a checkpoint, a table), then write it"
            )
        counts = {name: int(count) for name, count in counts.items()}
        ends = _ends(footer.min_key, footer.max_key)
        return _status(bound, assignment, counts, info.size, ends, adopted=True)
    except InvalidInputError:  # a ValueError, too
        raise
    except (KeyError, ValueError, TypeError, AttributeError):
        raise CorruptFile(f"{assignment.path} exists and was not written by this write") from None


class FileInProgress:
    """A base file that is being written; nothing of it is visible before :meth:`finish`."""

    def __init__(
        self,
        bound: BoundContext,
        assignment: FileAssignment,
        stack: ExitStack,
        bloom: BloomFilter | None = None,
    ) -> None:
        self._bound = bound
        self._assignment = assignment
        self._settings = bound.settings
        self._file_schema = self._schema = bound.file_schema
        self._virtual_columns = bound.virtual_columns
        if self._virtual_columns is not None:
            self._schema = with_meta_columns(self._virtual_columns.schema)
        self._meta = MetaColumns(bound.instant, assignment)
        #: Takes the file's bytes, and puts it.
        self.sink = stack.enter_context(bound.store.create(assignment.path, durable=bound.durable))
        self._writer = BaseFileWriter(self.sink.file, self._file_schema, bound.codec, bound.codec_level)
        stack.callback(self._writer.discard)
        self._keys = FileKeys()
        stack.callback(self._keys.close)
        self._rows_in = 0
        self._counts = dict.fromkeys(("inserts", "updates", "deletes", "late", "ignored"), 0)
        self._bloom = bloom
        self._key_change: FileKeyChange | None = None
        self._ends: tuple[str, str] | None = None
        self._key_hashes: bytes | None = None
        #: Meta columns of one text come as dictionaries; the first rows say so for all.
        self._coded: bool | None = None

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

    def append(self, rows: pa.Table) -> None:
        """Write new rows; those that mark themselves deleted are counted and left out."""
        step = rows_per_row_group(rows)
        for start in range(0, rows.num_rows, step):
            self._append_group(rows.slice(start, step))

    def store_new(self, complete: pa.Table, traits: ColumnTraits, ends: tuple[str, str]) -> None:
        """Write all rows of a new file, none of which deletes its key.

        Args:
            complete: the rows, all columns there.
            traits: what is known of them.
            ends: the smallest and the largest of their keys.
        """
        self._rows_in += complete.num_rows
        self._counts["inserts"] += complete.num_rows
        if self._has_keys:
            self._keys.add(complete.column(RECORD_KEY), ends=ends)
        self._writer.write(complete, traits=traits)

    def _append_group(self, rows: pa.Table) -> None:
        self._rows_in += rows.num_rows
        deletes = routed_deletes(self._bound, rows)
        if deletes.any():
            self._counts["ignored"] += int(deletes.sum())
            rows = rows.filter(from_numpy(~deletes))
        self._counts["inserts"] += rows.num_rows
        if self._coded is None:
            self._coded = self._virtual_columns is None and rows.num_rows >= _MANY_ROWS
        complete = self._meta.complete(rows, self._schema, coded=self._coded)
        if self._has_keys:
            self._keys.add(complete.column(RECORD_KEY), copy=True)
        self._store_rows(complete)

    @property
    def _has_keys(self) -> bool:
        # Without meta columns a file holds neither keys nor footers about them (docs/format.md, Meta columns).
        return self._virtual_columns is None or not self._virtual_columns.makes_keys

    def _store_rows(self, rows: pa.Table, kept: Mapping[str, Pages] | None = None) -> None:
        if self._virtual_columns is not None:
            rows = self._virtual_columns.stored(rows, self._assignment.partition, self._file_schema)
        self._writer.write(rows, kept=kept)
        if isinstance(self.sink, SupportsBeginFlush):
            self.sink.begin_flush()  # of a large file, while what follows is encoded

    def rewrite(self, rows: pa.Table, *, use_threads: bool = False, known_footer: KnownFooter | None = None) -> None:
        """Write the assigned base file's rows with the routed rows merged in."""
        base_file = self._assignment.base
        if base_file is None:
            raise InternalError("there is no base file to rewrite")
        reader = BaseFileReader(self._bound.store, self._virtual_columns)
        self._rows_in += rows.num_rows
        # Every row gets this file's name: the old one need not be read, and is as long as the rest of a row.
        kept = self._schema.remove(self._schema.get_field_index(FILE_NAME))
        part_bytes = row_group_bytes() if self._bound.cdc is None and self._may_be_cut else None
        coded = self._may_be_coded(kept)
        with reader.in_parts(
            base_file, kept.names, part_bytes, use_threads=use_threads, coded=coded, known_footer=known_footer
        ) as parts:
            store = partial(self._store_named, self._kept_columns(reader, base_file, parts.known))
            self._merge_and_store(InSchema(kept, parts.parts), parts, rows, store, beside=use_threads)

    def _kept_columns(self, reader: BaseFileReader, base_file: BaseFile, footer: KnownFooter) -> KeptColumns | None:
        # Pages of other writers may lack checksums; those of a small file are encoded as quickly.
        if STAT_KEY not in footer.footer.entries or base_file.size < _LARGE_BYTES or self._virtual_columns is not None:
            return None
        from lakefmt.write.files.kept_columns import KeptColumns

        return KeptColumns(reader, base_file, footer, self._file_schema, self._bound.codec)

    def _merge_and_store(
        self, bases: InSchema, parts: FileParts, rows: pa.Table, store: Callable[[Merged], None], *, beside: bool
    ) -> None:
        footer, old_rows = parts.known.footer, parts.known.footer.num_rows

        def with_group(merged: Merged) -> Merged:
            return replace(merged, group=bases.group)  # of the part that was read last

        if parts.is_cut:
            merges = merge_in_parts(bases, old_rows, self._incoming(rows), self._rule(rows))
            merged, keys = store_parts(map(with_group, merges), store, beside=beside)
            self._take_merged(merged, keys, old_rows, footer, _new_ends(merged), {})
            self._grow_filter(merged, len(keys), old_rows, footer)
            return
        base = next(bases)
        merged = with_group(self._merge(base, rows))
        cdc = self._bound.cdc
        change_counts = {} if cdc is None else log_changes(self._bound, self._assignment, base, merged)
        del base  # what is merged has values of its own
        self._take_merged(merged, merged.table.column(RECORD_KEY), old_rows, footer, _new_ends(merged), change_counts)
        self._grow_filter(merged, merged.table.num_rows, old_rows, footer)
        store(merged)

    def store_merged(
        self,
        merged: Merged,
        rows_in: int,
        footer: BaseFileFooter,
        bloom: BloomFilter | None,
        traits: ColumnTraits,
        new_ends: tuple[str, str] | None,
    ) -> None:
        """Write merged rows of the assigned base file, all columns there.

        Args:
            merged: the rows, and what became of those that were routed.
            rows_in: how many were routed.
            footer: that of the base file.
            bloom: the filter of all keys; None: make one.
            traits: what is known of the rows.
            new_ends: the smallest and the largest of the keys that the base file lacks; None: there are none.
        """
        self._rows_in += rows_in
        self._bloom = bloom
        self._take_merged(merged, merged.table.column(RECORD_KEY), footer.num_rows, footer, new_ends, {})
        self._writer.write(merged.table, traits=traits)

    def _take_merged(
        self,
        merged: Merged,
        keys: pa.ChunkedArray,
        old_rows: int,
        footer: BaseFileFooter,
        new_ends: tuple[str, str] | None,
        change_counts: Mapping[str, int],
    ) -> None:
        """Keep the counts of merged rows, and what the footer says of their keys."""
        self._counts = {
            "inserts": merged.inserted,
            "updates": merged.updated,
            "deletes": merged.deleted,
            "late": merged.late,
            "ignored": merged.ignored_deletes,
            **change_counts,
        }
        if self._has_keys:
            if self._bound.written_keys is not None:
                self._key_change = key_change_of(self._assignment, merged, keys)
            ends = None if merged.deleted else _ends(footer.min_key, footer.max_key)
            self._keys.add(keys, ends=widened(ends, new_ends) if old_rows else None)

    def _grow_filter(self, merged: Merged, num_keys: int, old_rows: int, footer: BaseFileFooter) -> None:
        if self._has_keys:
            old_filter = footer.bloom_filter()
            self._bloom = grown_filter(old_filter, old_rows, num_keys, merged.inserted_keys, self._settings)

    def _store_named(self, old: KeptColumns | None, merged: Merged) -> None:
        name = same_text(self._assignment.file_name, merged.table.num_rows)
        name_index = self._schema.get_field_index(FILE_NAME)
        named = without_unused(merged.table).add_column(name_index, FILE_NAME, name)
        self._store_rows(named, None if old is None else old.pages(merged))

    @property
    def _may_be_cut(self) -> bool:
        # A merge function of one's own is given all rows at once.
        return self._assignment.match_keys and not self._bound.rule.is_own

    def _may_be_coded(self, schema: pa.Schema) -> set[str]:
        """Return the columns of text whose values are not needed while rows are merged and stored."""
        rule = self._bound.rule
        if rule.is_own or self._virtual_columns is not None or self._bound.cdc is not None:
            return set()
        asked = {RECORD_KEY, *(name.split(".", 1)[0] for name in rule.stored.fields)}
        texts = (f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type))
        return {name for name in texts if name not in asked}

    def _merge(self, base: pa.Table, rows: pa.Table) -> Merged:
        incoming = self._incoming(rows)
        if not self._assignment.match_keys:
            complete, deletes = incoming.table, incoming.deletes
            kept = complete.filter(from_numpy(~deletes)) if deletes.any() else complete
            joined = appended(base, kept.select(base.column_names))
            ignored = int(deletes.sum())
            return Merged(joined, kept.num_rows, 0, 0, 0, ignored, kept.column(RECORD_KEY))
        return merge_into_base(base, incoming, rule=self._rule(rows))

    def _incoming(self, rows: pa.Table) -> Incoming:
        present = frozenset((*META_COLUMNS, *rows.column_names))
        columns = None if present.issuperset(self._schema.names) else present
        return Incoming(self._meta.complete(rows, self._schema), routed_deletes(self._bound, rows), columns)

    def _rule(self, rows: pa.Table) -> MergeRule:
        rule = self._bound.rule
        is_delete = self._bound.operation is WriteOperation.DELETE
        # Without an event time the later write wins.
        return rule.without_order() if is_delete or not has_order(rule.stored, rows.column_names) else rule

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
        self._check_counts()
        low, high = self._keys.range
        footers = key_footers(KeySummary(low, high, self._filter()), self._bound.context.file_schema_text)
        self._ends, self._key_hashes = _ends(low, high), self._hashes()
        self._counts = {"rows_in": self._rows_in, "rows": self.num_rows, **self._counts}
        digest = {} if self._assignment.digest is None else {_DIGEST: self._assignment.digest}
        footers[STAT_KEY] = json.dumps({**self._counts, **digest})
        self._writer.close(footers)
        if self._bound.written_keys is not None and self._assignment.base is None:
            self._key_change = new_keys(self._keys.few(_MOST_NEW_KEYS))
        self._keys.close()

    def placed(self, outcome: PutOutcome) -> WriteStatus:
        """Return the status of the closed file, or of the one that is there, by what putting it said.

        Raises:
            StorageError: the store does not say whether the file is there.
        """
        written_keys = self._bound.written_keys
        if outcome is PutOutcome.DONE:
            if written_keys is not None and self._key_change is not None:
                written_keys.keep(self._assignment.path, self._key_change)
            return _status(self._bound, self._assignment, self._counts, self.sink.size, self._ends, self._key_hashes)
        adopted = adopt(self._bound, self._assignment)
        if adopted is None:
            raise StorageError(f"the store does not say whether {self._assignment.path} was written", transient=True)
        return adopted

    def _filter(self) -> BloomFilter | None:
        if not self._has_keys or not self._bound.writes_filters:
            return None
        # Rows that mark themselves deleted are left out: then the filter that was made is of too many keys.
        if self._bloom is not None and (self._assignment.base is not None or self._bloom.num_keys == len(self._keys)):
            return self._bloom
        if len(self._keys) > _MANY_KEYS:
            pa.default_memory_pool().release_unused()
        bloom = new_filter(self._settings, len(self._keys))
        self._keys.add_to(bloom, row_memory(self._settings.integer("lakefmt.write.window.bytes")))
        return bloom

    def _hashes(self) -> bytes | None:
        """Return the hashes of the keys, when writers beside this one may ask for them (not for generated ones), and they are few."""
        if not self._bound.beside or not self._bound.config.record_key_fields:
            return None
        keys = self._keys.few(MOST_HASHES)
        return None if keys is None else hash_keys(keys)

    def _check_counts(self) -> None:
        expected = self._assignment.num_rows
        if expected is not None and self._rows_in != expected:
            raise InternalError(
                f"{self._assignment.path}: {expected} rows were assigned and {self._rows_in} came; nothing is written"
            )


def _new_ends(merged: Merged) -> tuple[str, str] | None:
    return _ends(*key_range(merged.inserted_keys)) if merged.inserted else None


def _ends(low: str | None, high: str | None) -> tuple[str, str] | None:
    return None if low is None or high is None else (low, high)


def _status(
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
