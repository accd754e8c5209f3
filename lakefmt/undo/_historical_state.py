"""Whether the files of an earlier state are still there: what cleans have deleted since, or are about to delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakefmt.compaction.clean.plan import parse_clean_plan
from lakefmt.errors import StateError
from lakefmt.filegroups.model import FileSlice, build_slices, join_path, parse_files
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.storage.api import ObjectInfo
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.timeline.savepoint import timeline_before
from lakefmt.values import PartitionPath

__all__ = ["check_whole", "state_without"]

#: partition → file name → the clean that removed it.
_Removed = Mapping[PartitionPath, Mapping[str, Instant]]


def state_without(client: TableClient, state: TableState, undone: Iterable[Instant]) -> TableState:
    """Return the state of a table before the instants `undone` became visible, with archived instants."""
    whole_state = client.with_history(state)
    return TableState(state.config, timeline_before(whole_state.timeline, undone), whole_state.history)


def check_whole(
    client: TableClient, now: TableState, then: TableState, what: str, *, waiting: bool = True
) -> list[FileSlice]:
    """Return the file slices of an earlier state.

    Args:
        client: the table.
        now: the table as it is; its cleans are read.
        then: the earlier state, from :func:`state_without`.
        what: begins the error message: what cannot be done without that state.
        waiting: whether cleans count that are only requested. False where the state becomes the newest at once: lakefmt's
            cleans delete nothing of the newest snapshot.

    Raises:
        StateError: a clean has removed one of its files, or a pending one is going to.
    """
    removed = _removed_by_cleans(client, now)
    bases, logs = client.storage_listing(now.config).files(None)
    present = {base.path for base in bases} | {log.path for log in logs}
    possibly_lost: dict[str, Instant] = {}
    for partition, names in removed.items():
        counting = {n: c for n, c in names.items() if waiting or c.state is not State.REQUESTED}
        deleted_by = {join_path(partition, name): clean for name, clean in counting.items()}
        possibly_lost |= {
            path: clean for path, clean in deleted_by.items() if path not in present or not clean.is_completed
        }
        missing = [ObjectInfo(path, 0) for path in deleted_by if path not in present]
        past_bases, past_logs = parse_files(partition, missing)
        bases, logs = [*bases, *past_bases], [*logs, *past_logs]
    slices = build_slices(bases, logs, client.slicing(then, bases, logs), client.replaced(then))
    lost = [path for file_slice in slices for path in file_slice.paths if path in possibly_lost]
    if lost:
        clean = possibly_lost[lost[0]]
        did = "removed it" if clean.is_completed else "is going to remove it; roll that clean back first"
        raise StateError(f"{what}: {lost[0]} is needed, and the clean {clean.time} {did}")
    return slices


def _removed_by_cleans(client: TableClient, state: TableState) -> _Removed:
    removed: dict[PartitionPath, dict[str, Instant]] = {}
    for clean in state.timeline:
        if clean.action is not Action.CLEAN:
            continue
        for partition, names in _names(client, state, clean).items():
            removed.setdefault(partition, {}).update(dict.fromkeys(names, clean))
    return removed


def _names(client: TableClient, state: TableState, clean: Instant) -> Mapping[PartitionPath, tuple[str, ...]]:
    """Return the names of the files that a clean removed or is going to remove, by partition."""
    file = clean
    if not clean.is_completed:
        file = next((f for f in state.timeline.files_of(clean) if f.state is State.REQUESTED), clean)
    body = client.read_body(state, file)
    if not body:
        return {}
    if not clean.is_completed:
        plan = decode_body(BodyKind.CLEANER_PLAN, body, what=file.file_name)
        return parse_clean_plan(client.store, plan, file.file_name).files
    record: Mapping[str, Any] = decode_body(BodyKind.CLEAN_METADATA, body, what=file.file_name)
    return {
        PartitionPath(partition): tuple(
            name.rpartition("/")[2] for name in (*part["successDeleteFiles"], *part["deletePathPatterns"])
        )
        for partition, part in record["partitionMetadata"].items()
    }
