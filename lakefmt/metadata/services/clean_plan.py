"""Which files of the metadata table no reader needs any more, and the clean's records for its timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefmt.metadata.layout import METADATA_DIRECTORY, MetadataFileName
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.timeline.instant import Action

__all__ = ["earliest_kept_instant", "files_to_clean", "metadata_clean_plan", "metadata_clean_result"]

_POLICY = "KEEP_LATEST_COMMITS"
_VERSION = 2


def earliest_kept_instant(timeline: MetadataTimeline, retained: int) -> str | None:
    """Return the instant from which on every state of the metadata table stays readable; None: all of them do.

    Parameters:
        timeline: the metadata table's.
        retained: how many of its newest commits and deltacommits stay readable.
    """
    done = timeline.completed(Action.DELTA_COMMIT, Action.COMMIT)
    regular = [each.time for each in done if not each.is_initialisation]
    return regular[-retained] if len(regular) > retained else None


def files_to_clean(files: Iterable[MetadataFileName], earliest: str, timeline: MetadataTimeline) -> list[str]:
    """Return the files of one partition that only states before an instant need.

    Parameters:
        files: of one partition of the metadata table.
        earliest: the state as of this instant stays readable.
        timeline: the metadata table's.

    Example:
        >>> from lakefmt.metadata.layout import parse_metadata_file
        >>> from lakefmt.metadata.timeline import parse_timeline
        >>> timeline = parse_timeline(["20260101000000000.commit", "20260102000000000.commit"], 1)
        >>> names = ["files-0000-0_0-0-0_20260101000000000.hfile", "files-0000-0_0-0-0_20260102000000000.hfile"]
        >>> files_to_clean([parse_metadata_file(name) for name in names], "20260103000000000", timeline)
        ['files-0000-0_0-0-0_20260101000000000.hfile']
    """
    groups: dict[str, list[MetadataFileName]] = {}
    for file in files:
        groups.setdefault(file.file_id, []).append(file)
    to_clean = []
    for own in groups.values():
        bases = [f.instant for f in own if f.version is None and timeline.completion_of(f.instant) is not None]
        kept = max((instant for instant in bases if instant <= earliest), default=None)
        if kept is None:
            continue
        for file in own:
            done = timeline.completion_of(file.instant)
            is_stray = done is None and not timeline.of_time(file.instant)
            last = file.instant if file.version is None or is_stray or file.instant in bases else done
            if last is not None and last < kept:
                to_clean.append(file.name)
    return sorted(to_clean)


def metadata_clean_plan(url: str, files: Mapping[str, list[str]], earliest: str, last: str) -> dict[str, object]:
    """Return the record of a requested clean.

    Parameters:
        url: of the data table.
        files: names by partition of the metadata table.
        earliest: the instant from which on states stay readable.
        last: the newest completed instant.
    """
    base = f"{url.rstrip('/')}/{METADATA_DIRECTORY}"
    return {
        "earliestInstantToRetain": {"timestamp": earliest, "action": Action.DELTA_COMMIT.value, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": last,
        "policy": _POLICY,
        "filesToBeDeletedPerPartition": {},
        "version": _VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": f"{base}/{partition}/{name}", "isBootstrapBaseFile": False} for name in names]
            for partition, names in files.items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": {},
    }


def metadata_clean_result(instant: str, files: Mapping[str, list[str]], earliest: str, last: str) -> dict[str, object]:
    """Return the record of a completed clean.

    Parameters:
        instant: its requested time.
        files: names by partition of the metadata table.
        earliest: the instant from which on states stay readable.
        last: the newest completed instant.
    """
    return {
        "startCleanTime": instant,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, files.values())),
        "earliestCommitToRetain": earliest,
        "lastCompletedCommitTimestamp": last,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": _POLICY,
                "deletePathPatterns": names,
                "successDeleteFiles": names,
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in files.items()
        },
        "version": _VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {},
    }
