"""The tables of a page: only what was named at the start, or lies below a folder that was; opened when they are asked for."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.messages import Redactor, printable_url
from lakefmt._core.storage.open import location_text, open_store
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.table import Table
from lakefmt._core.timeline.store import InstantCache
from lakefmt.errors import InvalidInputError, LakefmtError, TableNotFound
from lakefmt.find_tables import find_tables

__all__ = ["JsonValue", "PageTable", "PageTables", "read_paths_file"]

#: What facts are made of.
JsonValue = Any
OpenStore = Callable[[str, Mapping[str, object] | None], ObjectStore]

_MOST_PATHS: Final = 10_000
_MOST_FILE_BYTES: Final = 1 << 20
#: Folders are looked into again after this many seconds, a timeline after the smaller number.
_FOLDER_SECONDS: Final = 15.0
_STATE_SECONDS: Final = 2.5
#: Commits whose metadata are held per table: what a page shows is less.
_MOST_COMMITS: Final = 1024
#: Of large tables one thing at a time is computed that lists, plans or reads much: memory does not add up.
_ALONE: Final = threading.RLock()
#: Files that are listed before an answer begins.
_FEW_FILES: Final = 2_000
#: Tables whose file slices are held at a time: of a hundred thousand files they take 60 MB.
_MOST_SLICED: Final = 2


def read_paths_file(path: Path) -> list[str]:
    """Return the paths of a file: one a line, blank lines and those that begin with ``#`` do not count.

    Raises:
        InvalidInputError: the file is none of paths, or has too many.
    """
    with path.open("rb") as file:
        data = file.read(_MOST_FILE_BYTES + 1)
    try:
        lines = [line.strip() for line in data.decode("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"{path} is no text of paths: name a table, a folder of tables or a file of paths"
        ) from None
    paths = [line for line in lines if line and not line.startswith("#")]
    if len(data) > _MOST_FILE_BYTES or len(paths) > _MOST_PATHS or "\0" in "".join(paths):
        raise InvalidInputError(f"{path} has more than {_MOST_PATHS:,} paths or {_MOST_FILE_BYTES:,} bytes")
    return paths


def _table_id(path: str) -> str:
    """Return the id of a table in addresses: of letters and digits, the same at every start."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", path.rstrip("/").rpartition("/")[2])[:40].strip("-")
    return f"{words or 'table'}-{hashlib.sha256(path.encode('utf-8', 'replace')).hexdigest()[:8]}".lower()


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is below a folder, links followed; of stores that know no links all are."""
    if "://" in path:
        return True
    real = os.path.realpath(folder)
    return os.path.commonpath((os.path.realpath(path), real)) == real


@dataclass(frozen=True)
class _CachedSlices:
    """File slices of a table at a state of its timeline."""

    key: tuple[object, ...]
    slices: list[FileSlice]


class PageTable:
    """One table of the page; the first request opens its handle, which stays open."""

    def __init__(
        self,
        path: str,
        name: str,
        options: Mapping[str, object],
        open_client: Callable[[], TableClient],
        tables: PageTables,
    ) -> None:
        self.path = path
        self.id = _table_id(path)
        self.name = name
        self.redact = tables.redact
        self._options = dict(options)
        self._open_client = open_client
        self._tables = tables
        self._lock = threading.Lock()
        self._table: Table | None = None
        self._state: tuple[float, TableAt] | None = None
        self._held: _CachedSlices | None = None
        self.remembered: dict[str, Any] = {}

    @property
    def shown_path(self) -> str:
        """The path without credentials."""
        return printable_url(self.path)

    @property
    def table(self) -> Table:
        """The table, for its verbs.

        Raises:
            LakefmtError: it cannot be opened.
        """
        with self._lock:
            if self._table is None:
                client = self._open_client()
                client.cache.commits = InstantCache(_MOST_COMMITS)
                client.open()
                self._table = Table(client)
            return self._table

    def base(self) -> tuple[ObjectStore, str, str] | None:
        """Return the store with the journal of loads, and the names of the table's database and folder. None: it lies in no two folders.

        Raises:
            LakefmtError: it cannot be opened.
        """
        above, _, folder = self.path.rstrip("/").rpartition("/")
        base, _, database = above.rpartition("/")
        if not base or not database or base.endswith("/"):
            return None
        return self._tables.open_journal(base), database, folder

    @property
    def client(self) -> TableClient:
        """The client of the table; that of one that cannot be opened, too."""
        try:
            return self.table.client
        except LakefmtError:
            return self._open_client()

    def at(self) -> TableAt:
        """Return the table as it is: of questions that come together only the first reads its timeline.

        Raises:
            LakefmtError: it cannot be read.
        """
        now = self._tables.time_source.monotonic()
        cached = self._state
        if cached is None or not 0 <= now - cached[0] < _STATE_SECONDS:
            return self.refresh()
        return cached[1]

    def forget(self) -> None:
        """Read the timeline anew with the next question."""
        self._state = None

    def refresh(self) -> TableAt:
        """Return the table as it is now, read anew; questions after this one are answered from it for a while.

        Raises:
            LakefmtError: it cannot be read.
        """
        table_at = self.table.client.at()
        self._state = (self._tables.time_source.monotonic(), table_at)
        return table_at

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others waiting that compute much of a large table."""
        with _ALONE if self.is_large else nullcontext():
            yield

    def slices(self) -> list[FileSlice]:
        """Return the latest file slice of every file group; held as long as the timeline is the same."""
        table_at = self.at()
        timeline = table_at.timeline
        key = (timeline.highest_time, len(timeline.instants), len(timeline.pending))
        cached = self._held
        if cached is None or cached.key != key:
            with self.alone():
                cached = self._held  # somebody may have listed them meanwhile
                if cached is None or cached.key != key:
                    cached = self._held = _CachedSlices(key, table_at.slices())
                    self._tables.note_slices(self)
        return cached.slices

    @property
    def is_large(self) -> bool:
        """Whether its files may be too many to be listed while somebody waits; only its newest commit is looked at."""
        if self._held is not None:
            return len(self._held.slices) > _FEW_FILES
        try:
            table_at = self.at()
            latest = table_at.timeline.latest_commit
            stats = 0 if latest is None else len(table_at.commit_metadata(latest).stats)
        except LakefmtError:
            return False
        return len(table_at.timeline.commits) * max(stats, 1) > _FEW_FILES

    @property
    def has_slices(self) -> bool:
        """Whether its files were listed lately."""
        return self._held is not None

    def drop_slices(self) -> None:
        """Give the memory of the file slices back."""
        self._held = None


class PageTables:
    """The tables that may be asked for, by their ids."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        options: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
        journal: str | None = None,
        open_with: OpenStore = open_store,
        time_source: TimeSource | None = None,
    ) -> None:
        """Take the places of tables; nothing is read yet.

        Args:
            paths: of tables, of folders of tables, or of local files with such paths.
            options: settings of the handles.
            storage_options: credentials and settings of the stores; they are shown nowhere.
            journal: where `lakefmt serve` stores transactions; None: two folders above each table, as it does.
            open_with: opens the store of a table.
            time_source: when folders and timelines are read anew.

        Raises:
            InvalidInputError: a path is none.
        """
        self.time_source = time_source or SystemTimeSource()
        self._options = dict(options or {})
        self._storage_options = storage_options
        self._journal = None if journal is None else location_text(journal)
        self.redact = Redactor(storage_options or {})
        self._open_with = open_with
        self._places = [location for path in paths for location in self._expanded(path)]
        self._lock = threading.Lock()
        self._known: dict[str, PageTable] = {}
        self._problems: dict[str, str] = {}
        self._looked: float | None = None
        self._sliced: list[PageTable] = []

    def _expanded(self, path: str) -> list[str]:
        location = location_text(path)
        if "://" not in location and Path(location).is_file():
            return [location_text(each) for each in read_paths_file(Path(location))]
        return [location]

    def listed(self) -> tuple[list[PageTable], dict[str, str]]:
        """Return the tables by name, and folders that could not be looked into with the reason."""
        with self._lock:
            now = self.time_source.monotonic()
            if self._looked is None or now - self._looked >= _FOLDER_SECONDS:
                self._look()
                self._looked = now
            return sorted(self._known.values(), key=lambda table: (table.name, table.path)), dict(self._problems)

    def find(self, table_id: str) -> PageTable:
        """Return a table by its id.

        Raises:
            TableNotFound: no table that was named has it.
        """
        known = self._known.get(table_id)
        if known is None:
            self.listed()
            known = self._known.get(table_id)
        if known is None:
            raise TableNotFound("no such table on this page")
        return known

    def _look(self) -> None:
        self._problems.clear()
        for location in self._places:
            try:
                tables = list(find_tables(location, storage_options=self._storage_options))[:_MOST_PATHS]
            except LakefmtError as error:
                self._problems[printable_url(location)] = self.redact(str(error))
                continue
            outside = [path for path, _ in tables if not _is_below(path, location)]
            for path in outside:
                self._problems[printable_url(path)] = "a link leads out of the folder: name the table to show it"
            tables = [(path, name) for path, name in tables if path not in set(outside)]
            if outside and not tables:
                continue
            if not tables:
                # Perhaps a damaged table, or one that comes later: it is named with its problem.
                tables = [(location, location.rstrip("/").rpartition("/")[2])]
            for path, name in tables:
                table_id = _table_id(path)
                if table_id not in self._known:
                    self._known[table_id] = PageTable(path, name, self._options, self._opener(path), self)

    def _opener(self, path: str) -> Callable[[], TableClient]:
        return lambda: TableClient(
            self._open_with(path, self._storage_options), dict(self._options), metadata_listing=ListingByMetadata()
        )

    def open_journal(self, base: str) -> ObjectStore:
        """Return the store with the journal of loads into tables below a base path, with their credentials.

        Raises:
            LakefmtError: it cannot be opened.
        """
        return self._open_with(self._journal or base, self._storage_options)

    def note_slices(self, table: PageTable) -> None:
        """Note that a table holds its file slices; of many tables only the last few do."""
        with self._lock:
            if table in self._sliced:
                self._sliced.remove(table)
            self._sliced.append(table)
            evicted = self._sliced[:-_MOST_SLICED]
            del self._sliced[:-_MOST_SLICED]
        for each in evicted:
            each.drop_slices()
