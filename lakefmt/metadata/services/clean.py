"""Clean of the metadata table (effects, under the table lock)."""

from __future__ import annotations

from lakefmt.metadata.layout import METADATA_DIRECTORY
from lakefmt.metadata.services.clean_plan import (
    earliest_kept_instant,
    files_to_clean,
    metadata_clean_plan,
    metadata_clean_result,
)
from lakefmt.metadata.writer import MetadataTableWriter
from lakefmt.timeline.instant import Action
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.observer import PendingCompletion

__all__ = ["clean_metadata_table"]

#: What Hudi appends to the last deltacommit's time for a clean in version 6.
_CLEAN_SUFFIX_V6 = "002"


def clean_metadata_table(writer: MetadataTableWriter, pending: PendingCompletion, retained: int) -> None:
    """Remove files that only old states of the metadata table need.

    Parameters:
        writer: writes the metadata table.
        pending: hands out instants.
        retained: how many of its newest commits stay readable.
    """
    store, timeline = writer.timeline_store, writer.timeline_store.load()
    earliest = earliest_kept_instant(timeline, retained)
    if earliest is None:
        return
    unneeded = {
        partition: files_to_clean(writer.files(partition), earliest, timeline)
        for partition in writer.config.metadata_partitions
    }
    files = {partition: names for partition, names in unneeded.items() if names}
    if not files:
        return
    instant, last = f"{pending.next_time()}{_CLEAN_SUFFIX_V6 if store.layout == 1 else ''}", timeline.highest_time
    plan = metadata_clean_plan(writer.store.url, files, earliest, last)
    store.request(instant, Action.CLEAN, encode_body(BodyKind.CLEANER_PLAN, plan))
    pending.prove_lock()
    writer.store.delete(f"{METADATA_DIRECTORY}/{path}/{name}" for path, names in files.items() for name in names)
    body = encode_body(BodyKind.CLEAN_METADATA, metadata_clean_result(instant, files, earliest, last))
    store.put_completed(instant, Action.CLEAN, pending.next_time(), body)
