"""The rows of a transaction until it commits: in memory while they are few, else in objects of the journal (effects).

An open transaction does not outlive its server, so its rows have to be durable only when it is prepared. Ten thousand loads of one row
each are therefore one object, written once.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from lakefmt._core.loads.journal import FOLDER, Part, TableLoad
from lakefmt._core.storage.api import ObjectStore, PutOutcome
from lakefmt.errors import CorruptFile, StorageError

__all__ = ["PART_BYTES", "Staged", "StagedParts"]

#: Rows that are more become an object.
PART_BYTES: Final = 8 << 20
#: So many batches are joined to one, since each costs as much memory as a small page.
_MOST_BATCHES: Final = 512


class StagedEnd(NamedTuple):
    """Where the rows of a place end: stored parts, rows in memory and their bytes."""

    parts: int
    held: tuple[pa.Table, ...]
    held_bytes: int


class Staged:
    """The rows of one table in one transaction.

    Args:
        store: of the journal.
        database: of the table.
        transaction: number of the transaction.
        load: where the parts are noted.
        numbers: yields numbers of objects, each once in the transaction.
        durable: objects are on the disk when they are written.
    """

    def __init__(
        self,
        store: ObjectStore,
        database: str,
        transaction: int,
        load: TableLoad,
        numbers: Iterator[int],
        *,
        durable: bool = True,
    ) -> None:
        self._store, self._load, self._numbers, self._durable = store, load, numbers, durable
        self._prefix = f"{FOLDER}/{database}/rows/{transaction}"
        self._held: list[pa.Table] = []
        self.held_bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Take rows.

        Raises:
            StorageError: they could not be stored; :meth:`cut` drops them.
        """
        if rows.num_rows:
            self._held.append(rows)
            self.held_bytes += rows.nbytes
        if self.held_bytes >= PART_BYTES:
            self.flush()
        elif len(self._held) >= _MOST_BATCHES:
            self._held = [_joined(self._held)]

    def mark(self) -> StagedEnd:
        """Return what there is now; :meth:`cut` goes back to it."""
        return StagedEnd(len(self._load.parts), tuple(self._held), self.held_bytes)

    def cut(self, mark: StagedEnd) -> list[str]:
        """Drop the rows that came after a mark; return the names of objects that are not needed any more.

        Rows of earlier loads that were stored together with later ones are held again.
        """
        gone = [part.name for part in self._load.parts[mark.parts :]]
        del self._load.parts[mark.parts :]
        self._held, self.held_bytes = list(mark.held), mark.held_bytes
        return gone

    def drop_held(self) -> None:
        """Drop the rows that are in memory."""
        self._held, self.held_bytes = [], 0

    def take(self, other: Staged) -> None:
        """Take the rows of another place, behind those that are here.

        Raises:
            StorageError: they could not be stored; :meth:`cut` drops them.
        """
        if other._load.parts:
            self.flush()  # what is here comes first
            self._load.parts += other._load.parts
        for table in other._held:
            self.add(table)
        other._held, other.held_bytes = [], 0

    def flush(self) -> None:
        """Store what is held.

        Raises:
            StorageError: it stays in memory.
        """
        if not self._held:
            return
        rows = _joined(self._held)
        sink = pa.BufferOutputStream()
        # Unpacked: LZ4 takes more of the processor's time than it saves of the disk's.
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=1 << 17)
        data = sink.getvalue()
        name = f"{self._prefix}-{next(self._numbers)}.arrow"
        outcome = self._store.put_if_absent(name, memoryview(data), durable=self._durable)
        if outcome is not PutOutcome.DONE and self._store.read(name, data.size + 1) != data.to_pybytes():
            raise StorageError(f"{name} could not be written", transient=True)
        digest = part_checksum(memoryview(data))
        self._load.parts.append(Part(name, rows.num_rows, data.size, digest))
        self._held, self.held_bytes = [], 0


def part_checksum(data: bytes | memoryview, like: str = "") -> str:
    """Return what tells whether the bytes of a part are those that were written.

    CRC-32, as in the pages of Parquet: a tenth of the time of a cryptographic digest, and nobody is kept from writing a part.

    Args:
        data: of the part.
        like: as the part's record has it: those that an earlier version has prepared have a BLAKE2b.
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest() if len(like) == 32 else f"{zlib.crc32(data):08x}"


def _joined(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    names = {name for table in tables for name in table.column_names}
    same = all(len(table.column_names) == len(names) for table in tables)
    joined = pa.concat_tables(tables) if same else pa.concat_tables(tables, promote_options="default")
    return joined.combine_chunks()


def read_part(store: ObjectStore, part: Part) -> pa.Table:
    """Return the rows of an object.

    Raises:
        CorruptFile: its bytes are not those that were written.
        ObjectNotFound: it is gone.
    """
    data = store.read(part.name, part.bytes)
    if len(data) != part.bytes or part_checksum(data, like=part.digest) != part.digest:
        raise CorruptFile(f"{part.name} is damaged: its bytes are not those that were staged")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            rows = reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"{part.name} is damaged: {str(error)[:200]}") from None
    if rows.num_rows != part.rows:
        raise CorruptFile(f"{part.name} is damaged: it has {rows.num_rows} rows, not {part.rows}")
    return rows


class StagedParts:
    """The rows of one table in one transaction, object by object, as often as they are asked for.

    Args:
        store: of the journal.
        load: with the parts.
    """

    def __init__(self, store: ObjectStore, load: TableLoad) -> None:
        self._store, self._load = store, load

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(part.rows for part in self._load.parts)

    @property
    def num_bytes(self) -> int:
        """How many bytes they take, packed."""
        return sum(part.bytes for part in self._load.parts)

    def __iter__(self) -> Iterator[pa.Table]:
        for part in self._load.parts:
            yield read_part(self._store, part)

    def verify(self) -> None:
        """Look whether all parts are there and whole.

        Raises:
            CorruptFile: one is not.
            ObjectNotFound: one is gone.
        """
        for part in self._load.parts:
            read_part(self._store, part)
