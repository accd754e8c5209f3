"""Takes what advice rests on: the profile of a table, from its commits, file names and some footers; and measured costs.

No row is read. The costs are those of this machine, which are kept in the user's cache folder, else the shipped ones.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from statistics import mean, median
from typing import Final

from lakefmt._core.advice.advise import CostCurves, parse_curves
from lakefmt._core.advice.profile import DEFAULT_FILE_BYTES, TableChoice, TableProfile
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.parquet.base_file import BaseFileFooter
from lakefmt._core.index.registry import INDEXES, own_name
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action, Instant, parse_instant_time
from lakefmt._core.values import TableType, WriteOperation
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "cache_path",
    "keep_curves",
    "load_curves",
    "profile_table",
    "shipped_curves",
]


#: Footers and commits that are looked at, the newest ones.
_FOOTERS: Final = 64
_COMMITS: Final = 50
#: Files of rising keys share few keys' ranges: at most this share of neighbours overlaps.
_MOST_OVERLAP: Final = 0.3
_LOADS: Final = frozenset(
    {WriteOperation.BULK_INSERT, WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE}
)
_SERVICES: Final = frozenset({WriteOperation.COMPACT, WriteOperation.CLUSTER})
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"


def profile_table(
    client: TableClient, *, reads_per_commit: float = 1.0, filter_columns: Iterable[str] = ()
) -> TableProfile:
    """Return the profile of a table.

    Args:
        client: the table.
        reads_per_commit: full reads between two commits; no commit tells it.
        filter_columns: columns that readers' filters name; no commit tells them.

    Raises:
        InvalidInputError: the table has no rows, or no such column.
    """
    state = client.load()
    table_at = client.at(state)
    columns = tuple(filter_columns)
    names = set(table_at.schema().names)
    if missing := [name for name in columns if name not in names]:
        raise InvalidInputError(f"the table has no column {missing[0]!r}")
    slices = table_at.slices()
    bases = [each.base for each in slices if each.base is not None]
    footers = [(base, client.reader.footer(base)) for base in _spread(bases, _FOOTERS)]
    sampled, sampled_bytes = sum(f.num_rows for _, f in footers), sum(b.size for b, _ in footers)
    if not sampled or not sampled_bytes:
        raise InvalidInputError("the table has no base file with rows: there is nothing to advise by")
    row_bytes = sampled_bytes / sampled
    rows = max(1, round(sum(base.size for base in bases) / row_bytes))
    commits = list(state.timeline.commits)[-_COMMITS:]
    bodies = [(instant, table_at.commit_metadata(instant)) for instant in commits]
    batches = _batches(bodies, rows)
    return TableProfile(
        rows=rows,
        row_bytes=row_bytes,
        partitions=max(1, len({each.partition for each in slices})),
        key_bytes=_key_bytes(footers),
        rising_keys=_has_rising_keys(footers),
        batch_rows=batches.rows,
        update_share=batches.update_share,
        delete_share=batches.delete_share,
        batch_partitions=batches.partitions,
        hot_share=batches.hot_share,
        late_share=batches.late_share,
        commits_per_day=_commits_per_day(commits, state),
        reads_per_commit=reads_per_commit,
        filter_columns=columns,
        today=_choice_of_today(table_at, bodies),
        version=state.config.version.value,
    )


def _spread(files: Sequence[BaseFile], most: int) -> list[BaseFile]:
    """Return at most `most` of the files, evenly from all of them."""
    step = max(1, -(-len(files) // most))
    return list(files[::step])


def _key_bytes(footers: Iterable[tuple[BaseFile, BaseFileFooter]]) -> int:
    lengths = [len(key.encode()) for _, footer in footers for key in (footer.min_key, footer.max_key) if key]
    return max(1, round(mean(lengths))) if lengths else 32


def _has_rising_keys(footers: Iterable[tuple[BaseFile, BaseFileFooter]]) -> bool:
    """Return whether the key ranges of files lie beside each other rather than over each other."""
    ranges = sorted((f.min_key, f.max_key) for _, f in footers if f.min_key is not None and f.max_key is not None)
    if len(ranges) < 2:
        return False
    overlapping = sum(following[0] <= before[1] for before, following in itertools.pairwise(ranges))
    return overlapping <= _MOST_OVERLAP * (len(ranges) - 1)


class _Batches:
    """Figures of usual commits: medians, and shares over all their rows."""

    def __init__(self, bodies: Sequence[CommitMetadata], newest: str) -> None:
        counted = [self._counted(body, newest) for body in bodies]
        rows = [each[0] for each in counted]
        total = max(1, sum(rows))
        self.rows = max(1, round(median(rows)))
        self.update_share = min(1.0, sum(each[1] for each in counted) / total)
        self.delete_share = min(1.0, sum(each[2] for each in counted) / total)
        self.partitions = max(1.0, float(median(each[3] for each in counted)))
        self.hot_share = min(1.0, sum(each[4] for each in counted) / total)
        self.late_share = min(1.0, sum(each[5] for each in counted) / total)

    @staticmethod
    def _counted(body: CommitMetadata, newest: str) -> tuple[int, int, int, int, int, int]:
        """Return rows, updates, deletes, partitions, rows of the fullest partition, rows outside of the newest one."""
        updates = sum(stat.num_update_writes for stat in body.stats)
        deletes = sum(stat.num_deletes for stat in body.stats)
        by_partition = {
            path: sum(stat.num_inserts + stat.num_update_writes for stat in stats)
            for path, stats in body.stats_by_partition.items()
        }
        rows = sum(by_partition.values())
        written = sum(count > 0 for count in by_partition.values())
        late = sum(count for path, count in by_partition.items() if path != newest)
        return rows, updates, deletes, max(1, written), max(by_partition.values(), default=0), late


def _batches(bodies: Sequence[tuple[Instant, CommitMetadata]], rows: int) -> _Batches:
    """Return what usual commits did; loads count only where there is nothing else."""
    writes = [body for _, body in bodies if body.operation not in _SERVICES and body.stats]
    usual = [body for body in writes if body.operation not in _LOADS]
    paths = {path for body in writes for path in body.stats_by_partition}
    newest = max(paths, default="")
    if not usual and not writes:
        raise InvalidInputError("no commit of the active timeline wrote rows: there is nothing to advise by")
    # The first commit of a table is a load, whatever it is called.
    return _Batches(
        usual[1:] if len(usual) == len(writes) > 1 and _is_load(usual[0], rows) else usual or writes, newest
    )


def _is_load(body: CommitMetadata, rows: int) -> bool:
    return sum(stat.num_inserts for stat in body.stats) > rows / 4


def _commits_per_day(commits: Sequence[Instant], state: TableState) -> float:
    if len(commits) < 2:
        return 1.0
    zone = state.config.zone or UTC
    first, last = (parse_instant_time(instant.time, zone) for instant in (commits[0], commits[-1]))
    days = (last - first).total_seconds() / 86_400
    return (len(commits) - 1) / days if days > 0 else 1.0


def _choice_of_today(table_at: TableAt, bodies: Sequence[tuple[Instant, CommitMetadata]]) -> TableChoice:
    config = table_at.config
    settings = resolve_settings(table_at.client.options, None, config.properties)
    is_mor = config.table_type is TableType.MERGE_ON_READ
    clustered = settings.text("hoodie.clustering.plan.strategy.sort.columns")
    clusters = settings.flag("hoodie.clustering.inline") and clustered
    index = _index_of_today(table_at.client, config, settings)
    return TableChoice(
        "mor" if is_mor else "cow",
        index,
        str(settings.text("hoodie.logfile.data.block.format") or "avro"),
        _compacted_after(settings, bodies) if is_mor else 0,
        max(1024, settings.integer("hoodie.parquet.max.file.size") or DEFAULT_FILE_BYTES),
        min(65_536, max(1, int(config.properties.get(_BUCKETS) or 256))) if index == "bucket" else 0,
        settings.flag("hoodie.bloom.index.use.metadata"),
        tuple(name.strip() for name in str(clustered).split(",")) if clusters else (),
        cluster_after=settings.integer("hoodie.clustering.inline.max.commits") if clusters else 0,
    )


def _index_of_today(client: TableClient, config: TableConfig, settings: Settings) -> str:
    index_type = settings.text("hoodie.index.type") or client.load_notes().get("index") or "bloom"
    name = own_name(str(index_type))
    if name not in INDEXES:
        raise UnsupportedFeature(
            f"advice knows no costs of the index {index_type!r} of this table: it knows {', '.join(sorted(INDEXES))}"
        )
    return name


def _compacted_after(settings: Settings, bodies: Sequence[tuple[Instant, CommitMetadata]]) -> int:
    """Return after how many deltacommits logs are compacted: by the settings, else as the timeline shows; 0: never."""
    if settings.flag("hoodie.compact.inline"):
        return settings.integer("hoodie.compact.inline.max.delta.commits")
    compactions = sum(body.operation is WriteOperation.COMPACT for _, body in bodies)
    deltas = sum(instant.action is Action.DELTA_COMMIT for instant, _ in bodies)
    return max(1, round(deltas / compactions)) if compactions else 0


_LOG: Final = logging.getLogger("lakefmt.advice")
_MOST_BYTES: Final = 1 << 20
_SHIPPED: Final = Path(__file__).with_name("curves.json")


def cache_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return where the costs of this machine are kept: below ``XDG_CACHE_HOME``, else ``~/.cache``.

    Example:
        >>> cache_path({"XDG_CACHE_HOME": "/var/cache/me"}).as_posix()
        '/var/cache/me/lakefmt/curves.json'
    """
    variables = os.environ if environment is None else environment
    home = variables.get("XDG_CACHE_HOME", "")
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return base / "lakefmt" / "curves.json"


def shipped_curves() -> CostCurves:
    """Return the costs that come with the package."""
    return parse_curves(_SHIPPED.read_bytes())


def load_curves(path: Path | None = None) -> CostCurves:
    """Return the costs that were measured on this machine, else the shipped ones.

    Args:
        path: a file of costs that must be there and readable; None: this machine's, where damage is logged and passed over.

    Raises:
        CorruptFile: the file `path` is missing or damaged.
    """
    if path is not None:
        return _read(path)
    try:
        return _read(cache_path())
    except FileNotFoundError:
        return shipped_curves()
    except (CorruptFile, OSError, RuntimeError) as error:
        _LOG.warning("costs of this machine are not used: %s", error)
        return shipped_curves()


def _read(path: Path) -> CostCurves:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CorruptFile(f"{path.name} is larger than {_MOST_BYTES:,} bytes: not a file of costs")
    try:
        return parse_curves(data)
    except InvalidInputError as error:
        raise CorruptFile(f"{path.name}: {error}") from None


def keep_curves(curves: CostCurves, path: Path | None = None) -> Path:
    """Keep the costs of this machine, as a whole or not at all; return the file."""
    target = cache_path() if path is None else path
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".curves-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(curves.as_json(), file, indent=1)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target
