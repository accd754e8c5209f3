"""The labels of a stream in the commits of a table, newest first (effects)."""

from __future__ import annotations

from collections.abc import Iterator

from lakefmt.filegroups.table_client import TableClient
from lakefmt.spark.streams.labels import BatchLabel, decode_label

__all__ = ["list_labels"]


def list_labels(client: TableClient, identifier: str) -> Iterator[BatchLabel]:
    """Yield the labels of an identifier, newest commit first; the archive is read when the active timeline is used up.

    Args:
        client: the table.
        identifier: ``hoodie.datasource.write.streaming.checkpoint.identifier``.

    Raises:
        CorruptFile: a commit, or the archive, is damaged.
    """
    state = client.load()
    seen = set()
    for instant in reversed(state.timeline.commits_by_completion):
        seen.add((instant.time, instant.action))
        label = decode_label(identifier, client.commit_metadata(state, instant).extra_metadata)
        if label is not None:
            yield label
    state = client.with_history(client.load())
    for instant in reversed(state.timeline.commits_by_completion):
        if (instant.time, instant.action) not in seen:
            label = decode_label(identifier, client.commit_metadata(state, instant).extra_metadata)
            if label is not None:
                yield label
