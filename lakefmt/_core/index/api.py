"""The protocol of every index: where a key is stored, and where a new key goes; and what is made of its answers. Pure.

An index gets the keys, the latest file slices and a reader of footers and keys; it returns pairs of row and slice. A
key without a pair is new. A key may have several pairs: plain inserts allow duplicates, and an update must reach all
of them.

What an index can do beyond that is said by its :class:`IndexCapabilities`. From what it says functions make pairs: from known
locations (:func:`locations_in`), and for keys whose partition is not known (:func:`locate_everywhere`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import BaseFileFooter
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = [
    "HASH_FIELD",
    "INDEX_TYPE",
    "FilterTally",
    "Index",
    "IndexCapabilities",
    "IndexCommit",
    "IndexContext",
    "IndexFactory",
    "IndexKeys",
    "KeyFileGroups",
    "KeyPlacement",
    "KeyReader",
    "Located",
    "LookUpStep",
    "PlacementKeeper",
    "PlacingIndex",
    "SelectiveKeyReader",
    "SmallKeyReader",
    "SupportsCommit",
    "SupportsGlobalLookup",
    "SupportsKeyLocations",
    "announce_commit",
    "capabilities_of",
    "keeps_placement",
    "locate_everywhere",
    "locations_in",
    "ordered_pairs",
    "partitions_of_keys",
    "partitions_to_list",
    "places_new_keys",
]

#: The setting that names an index, and the one that names the fields of which a bucket index takes the hash.
INDEX_TYPE: Final = "hoodie.index.type"
HASH_FIELD: Final = "hoodie.bucket.index.hash.field"

_Rows = npt.NDArray[np.int64]


class KeyReader(Protocol):
    """What an index may ask of base files; every call may come from a thread of its own."""

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return a file's footer: rows, key range, the stored text of its filter."""
        ...

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's key filter, None when it has none."""
        ...

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, in file order."""
        ...


@runtime_checkable
class SelectiveKeyReader(KeyReader, Protocol):
    """A reader that knows more of a file than its range: it leaves out parts that cannot hold what is looked for.

    Attributes:
        threads: how many threads it pays to ask with at once.
    """

    threads: int

    def keys_with_positions(
        self, file: BaseFile, keys_to_find: pa.StringArray
    ) -> tuple[pa.ChunkedArray, npt.NDArray[np.int64]] | None:
        """Return the keys of the parts of a file that may hold some of `keys_to_find`, and the row of each.

        None: no part does, and none is read.
        """
        ...


@runtime_checkable
class SmallKeyReader(SelectiveKeyReader, Protocol):
    """A reader that has all keys of small files at hand when it has their footers."""

    def is_small(self, file: BaseFile) -> bool:
        """Tell whether a file is so small that its keys are read with its footer."""
        ...


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """Keys to look up: record keys and the partition each row is meant for. No nulls, equal lengths."""

    keys: pa.StringArray
    partitions: pa.DictionaryArray

    def __len__(self) -> int:
        return len(self.keys)

    def partition_names(self) -> list[str]:
        """Return the partition paths, by their codes in `partitions`."""
        names: list[str] = self.partitions.dictionary.to_pylist()  # partitions, not rows
        return names

    def partition_codes(self) -> npt.NDArray[np.int64]:
        """Return the code of each row's partition, ``(n_rows,) int64``."""
        codes: npt.NDArray[np.int64] = self.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes


@dataclass(frozen=True, slots=True)
class LookUpStep:
    """One step of a look-up, for people who ask why it was slow.

    Attributes:
        name: what the step did.
        files: how many files were left after it.
        candidates: how many pairs of key and file were left after it.
    """

    name: str
    files: int
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class FilterTally:
    """What key filters said in one look-up, and how much of it was true.

    Attributes:
        asked: pairs of key and file that were asked about.
        passed: pairs of which a filter said "maybe".
        right: pairs of these whose key is stored in the file.
    """

    asked: int = 0
    passed: int = 0
    right: int = 0

    def __add__(self, other: FilterTally) -> FilterTally:
        return FilterTally(self.asked + other.asked, self.passed + other.passed, self.right + other.right)

    @property
    def false(self) -> int:
        """Pairs that a filter passed in vain."""
        return self.passed - self.right

    @property
    def false_rate(self) -> float | None:
        """The share of keys that are not in a file and passed its filter all the same; None when there were none.

        Example:
            >>> FilterTally(asked=1010, passed=12, right=10).false_rate
            0.002
        """
        absent = self.asked - self.right
        return self.false / absent if absent else None


@dataclass(frozen=True, slots=True)
class Located:
    """Pairs of row number and slice number, ordered by row; rows without a pair are new keys.

    ``steps`` and ``filters`` tell how the answer was found; an index may leave them out. ``positions`` may tell for each
    pair the row of the slice's base file that has the key, -1 where that is not known or where several rows have it.
    """

    rows: npt.NDArray[np.int64]
    slices: npt.NDArray[np.int64]
    steps: tuple[LookUpStep, ...] = field(default=())
    filters: FilterTally | None = None
    positions: npt.NDArray[np.int64] | None = None

    def where(self, which: npt.NDArray[np.bool_]) -> Located:
        """Return some of the pairs.

        Example:
            >>> pairs = Located(np.array([4, 5]), np.array([0, 1]))
            >>> pairs.where(np.array([False, True])).rows.tolist()
            [5]
        """
        positions = None if self.positions is None else self.positions[which]
        return Located(self.rows[which], self.slices[which], self.steps, self.filters, positions)


@dataclass(frozen=True, slots=True)
class IndexCapabilities:
    """What an index does beyond :meth:`Index.locate`.

    Attributes:
        places_new_keys: it decides the file group of every key, stored or new (:class:`PlacingIndex`). Small files are
            not filled with new rows then, and an upsert reads no file to find its keys.
        covers_logs: its answers include keys that only log files hold, and leave out keys that log files have deleted.
            Otherwise the write reads the logs itself.
        needs_file_reader: it reads base files. False: it answers by :class:`SupportsKeyLocations`, from the keys alone,
            and only the partitions that it names are listed.
        on_commit: it is called before a commit completes (:class:`SupportsCommit`).
        on_place: it stores how it places keys, and is called when a write has placed its rows (:class:`PlacementKeeper`).
            Of built-in indexes only.
        splits_buckets: clustering splits and merges its file groups (:class:`lakefmt._core.index.bucket_ring.SplittingIndex`).
            Of built-in indexes only.
        in_tasks: other processes may ask it for a part of the keys. Of built-in indexes only.
    """

    places_new_keys: bool = False
    covers_logs: bool = False
    needs_file_reader: bool = True
    on_commit: bool = False
    on_place: bool = False
    splits_buckets: bool = False
    in_tasks: bool = True


class Index(Protocol):
    """Finds where keys are stored.

    An index may have an attribute ``capabilities``, an :class:`IndexCapabilities`; without it the index has none of them.

    Attributes:
        name: as in ``create_table(index=…)``.
        is_global: True when a key is unique in the table, not only in its partition.
    """

    name: str
    is_global: bool

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`.

        An index that is not global answers with slices of a row's own partition only. The answer is trusted: a key
        that is stored and not found is stored twice.
        """
        ...


def capabilities_of(index: object) -> IndexCapabilities:
    """Return what an index can do; an index that does not say can do nothing beyond the protocol.

    Example:
        >>> from lakefmt._core.index import open_index
        >>> capabilities_of(open_index("bloom")).places_new_keys
        False
    """
    capabilities = getattr(index, "capabilities", None)
    return capabilities if isinstance(capabilities, IndexCapabilities) else IndexCapabilities()


@dataclass(frozen=True, slots=True)
class KeyPlacement:
    """The file group of each key.

    Attributes:
        groups: ``(n_keys,) int64``, numbers into `file_groups`.
        file_groups: partition and file id of each file group, each once. An id that no file slice has opens a file group.
    """

    groups: npt.NDArray[np.int64]
    file_groups: Sequence[tuple[PartitionPath, FileId]]


class PlacingIndex(Index, Protocol):
    """An index with ``places_new_keys``: the file group of a key follows from the key, not from what is stored."""

    def place(self, index_keys: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        """Return the file group of every key.

        The same key always gets the same file group, as long as `slices` has it. Nothing is read.

        Args:
            index_keys: the keys, and the partition that each is meant for.
            slices: the latest file slices of these partitions; none when what is stored is replaced.
            new_uuid: makes UUIDs for the ids of new file groups.
        """
        ...


def places_new_keys(index: Index) -> TypeGuard[PlacingIndex]:
    """Return whether an index decides the file group of every key."""
    return capabilities_of(index).places_new_keys


class PlacementKeeper(PlacingIndex, Protocol):
    """An index with ``on_place``: it stores in the table how it places keys."""

    def on_replace(self) -> None:
        """Give every key a new file group from now on: the write replaces what is stored."""
        ...

    def on_place(self, instant: InstantTime) -> Sequence[PartitionPath]:
        """Store the placement that a write relies on, before its first file is written.

        Args:
            instant: the requested time of the write, which is inflight.

        Returns:
            The partitions whose placement was another one before: no other write may use them meanwhile.
        """
        ...

    def on_completed(self, instant: InstantTime) -> None:
        """Mark the placement of a write that has completed; an error of the store does not fail the write."""
        ...


def keeps_placement(index: object) -> TypeGuard[PlacementKeeper]:
    """Return whether an index stores in the table how it places keys."""
    return capabilities_of(index).on_place


@dataclass(frozen=True, slots=True)
class KeyFileGroups:
    """The file groups where keys are stored, as three columns of equal length.

    Attributes:
        rows: ``(n,) int64``, numbers of wanted keys.
        partitions: the partition path of each, without nulls.
        file_ids: the file id of each, without nulls.
    """

    rows: npt.NDArray[np.int64]
    partitions: pa.StringArray
    file_ids: pa.StringArray


@runtime_checkable
class SupportsKeyLocations(Protocol):
    """An index that knows the locations of keys without reading the table's data files."""

    def key_locations(self, index_keys: IndexKeys) -> KeyFileGroups:
        """Return the file groups that hold the wanted keys.

        An index that is not global answers with a row's own partition only. File groups that the table no longer has
        may be named; they are left out.
        """
        ...


@dataclass(frozen=True, slots=True)
class IndexCommit:
    """A commit, as far as an index has to know it.

    Attributes:
        time: the requested time of its instant.
        stats: its files.
        new_keys: reads the record keys of one of these files by its number; None for files that bring no new keys, and for
            log files, whose keys the write looks for itself.
    """

    time: InstantTime
    stats: Sequence[WriteStat]
    new_keys: Callable[[int], pa.ChunkedArray | None]


@runtime_checkable
class SupportsCommit(Protocol):
    """An index with ``on_commit``: it keeps something of its own in step with the table."""

    def on_commit(self, commit: IndexCommit) -> None:
        """Keep what belongs to a commit whose files are written and that is not visible yet.

        The instant may still fail to complete, and later commits of other engines are not announced: what is kept for an
        instant counts only while the instant is committed, and the index has to look for commits that it does not know. An
        error fails the write.
        """
        ...


def announce_commit(index: object, commit: IndexCommit) -> None:
    """Tell an index of a commit, if it can be told."""
    if isinstance(index, SupportsCommit):
        index.on_commit(commit)


@dataclass(frozen=True, slots=True)
class IndexContext:
    """What an index that keeps something of its own needs of the table, for one look at it.

    Attributes:
        url: where the table is, without secrets.
        options: the settings of the call.
        commits: requested times of the completed commits that are not archived, oldest first.
        first_pending: requested time of the oldest pending instant; None: none is pending.
        is_committed: tells whether the instant with a requested time is a completed commit, archived ones included.
        commit: reads one of `commits`.
        stored_keys: yields partition, file id, instant and record keys of every base file of the table.
    """

    url: str
    options: Mapping[str, object]
    commits: Sequence[InstantTime]
    first_pending: InstantTime | None
    is_committed: Callable[[InstantTime], bool]
    commit: Callable[[InstantTime], IndexCommit]
    stored_keys: Callable[[], Iterable[tuple[PartitionPath, FileId, InstantTime, pa.ChunkedArray]]]


#: What an entry point of the group ``lakefmt.indexes`` names: it makes the index for one look at a table.
IndexFactory = Callable[[IndexContext], Index]


@runtime_checkable
class SupportsGlobalLookup(Protocol):
    """An index that can also look up keys whose partition is not known."""

    def for_global_lookup(self) -> Index:
        """Return an index that looks in every partition, whatever partition a row is meant for."""
        ...


def ordered_pairs(
    rows: Sequence[_Rows],
    slices: Sequence[_Rows],
    steps: tuple[LookUpStep, ...],
    tally: FilterTally | None,
    positions: Sequence[_Rows | None],
) -> Located:
    """Join per-file answers into pairs ordered by row."""
    empty = np.empty(0, dtype=np.int64)
    all_rows, all_slices = np.concatenate([empty, *rows]), np.concatenate([empty, *slices])
    order = np.lexsort((all_slices, all_rows))
    known_positions = [file_positions for file_positions in positions if file_positions is not None]
    file_positions = (
        np.concatenate([empty, *known_positions])[order] if len(known_positions) == len(positions) else None
    )
    return Located(all_rows[order], all_slices[order], steps, tally, file_positions)


def locations_in(locations: KeyFileGroups, slices: Sequence[FileSlice]) -> Located:
    """Return the pairs of row and slice that locations mean; those of file groups without a slice are left out.

    Example:
        >>> from lakefmt._core.values import FileId, InstantTime, PartitionPath
        >>> slices = [FileSlice(PartitionPath("p"), FileId(name), InstantTime("1"), None) for name in ("f-0", "g-0")]
        >>> where = KeyFileGroups(np.array([0, 1, 2]), pa.array(["p", "p", "q"]), pa.array(["g-0", "gone-0", "f-0"]))
        >>> pairs = locations_in(where, slices)
        >>> pairs.rows.tolist(), pairs.slices.tolist()
        ([0], [1])
    """
    stored = pc.binary_join_element_wise(
        pa.array([file_slice.partition for file_slice in slices], pa.string()),
        pa.array([file_slice.file_id for file_slice in slices], pa.string()),
        "/",  # no file id has one
    )
    group_ids = pc.binary_join_element_wise(locations.partitions, locations.file_ids, "/")
    numbers = pc.index_in(group_ids, value_set=stored)
    has_slice: npt.NDArray[np.bool_] = numbers.is_valid().to_numpy(zero_copy_only=False)
    return ordered_pairs(
        [locations.rows[has_slice]], [numbers.drop_null().to_numpy().astype(np.int64)], (), None, [None]
    )


def partitions_to_list(index: Index, index_keys: IndexKeys) -> list[PartitionPath] | None:
    """Return the partitions whose file slices an index has to be given; None: those of the whole table.

    Of an index that reads no file these are the partitions that it names, beside those that rows are meant for.
    """
    meant = index_keys.partition_names()
    if not index.is_global:
        return [PartitionPath(path) for path in meant]
    if capabilities_of(index).needs_file_reader or not isinstance(index, SupportsKeyLocations):
        return None
    named = index.key_locations(index_keys).partitions.unique().to_pylist()  # partitions, not rows
    return [PartitionPath(path) for path in dict.fromkeys([*meant, *named])]


def partitions_of_keys(index: Index, keys: pa.StringArray) -> list[PartitionPath] | None:
    """Return the partitions whose file slices :func:`locate_everywhere` needs; None: all partitions."""
    for_global_lookup = index.for_global_lookup() if isinstance(index, SupportsGlobalLookup) else index
    if not for_global_lookup.is_global or capabilities_of(for_global_lookup).needs_file_reader:
        return None
    nowhere = pa.DictionaryArray.from_arrays(pa.nulls(len(keys), pa.int32()), pa.array([], pa.string()))
    return partitions_to_list(for_global_lookup, IndexKeys(keys, nowhere))


def locate_everywhere(index: Index, keys: pa.StringArray, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return where keys are stored among `slices`, whatever their partitions are (a delete by key, an explanation).

    An index that knows only partitions is asked for each of them in turn.
    """
    for_global_lookup = index.for_global_lookup() if isinstance(index, SupportsGlobalLookup) else index
    if for_global_lookup.is_global:
        return for_global_lookup.locate(_meant_for(keys, ""), slices, reader)
    numbers: dict[str, list[int]] = {}
    for number, file_slice in enumerate(slices):
        numbers.setdefault(file_slice.partition, []).append(number)
    answers = [
        (
            np.array(own_slices, dtype=np.int64),
            for_global_lookup.locate(_meant_for(keys, p), [slices[n] for n in own_slices], reader),
        )
        for p, own_slices in numbers.items()
    ]
    return ordered_pairs(
        [located.rows for _, located in answers],
        [own_slices[located.slices] for own_slices, located in answers],
        _joined_steps([located.steps for _, located in answers]),
        _joined_tallies([located.filters for _, located in answers]),
        [located.positions for _, located in answers],
    )


def _meant_for(keys: pa.StringArray, partition: str) -> IndexKeys:
    codes = from_numpy(np.zeros(len(keys), np.int32))
    return IndexKeys(keys, pa.DictionaryArray.from_arrays(codes, pa.array([partition], pa.string())))


def _joined_steps(many: Iterable[tuple[LookUpStep, ...]]) -> tuple[LookUpStep, ...]:
    joined: dict[str, LookUpStep] = {}
    for step in (step for steps in many for step in steps):
        sums = joined.get(step.name, LookUpStep(step.name, 0))
        joined[step.name] = LookUpStep(step.name, sums.files + step.files, sums.candidates + step.candidates)
    return tuple(joined.values())


def _joined_tallies(many: Iterable[FilterTally | None]) -> FilterTally | None:
    tallies = [tally for tally in many if tally is not None]
    return sum(tallies, FilterTally()) if tallies else None
