"""Labels of a stream's batches in commits, by which a batch is written exactly once (pure).

Every commit of a stream says which batch it holds: Hudi's ``_hudi_streaming_sink_checkpoint`` is a JSON mapping from the
stream's identifier to the number of the batch, and ``lakefmt.streaming.query`` one from the identifier to the id of the query.
Hudi compares numbers alone. A query with a new checkpoint folder counts from 0 again; by the id it is known as another one.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from typing import Final

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile

__all__ = ["CHECKPOINT", "QUERY", "BatchLabel", "BatchStep", "choose_step", "decode_label", "encode_label"]

CHECKPOINT: Final = "_hudi_streaming_sink_checkpoint"
QUERY: Final = "lakefmt.streaming.query"


@dataclass(frozen=True, slots=True)
class BatchLabel:
    """The label of one commit for one identifier.

    Attributes:
        batch: the number of the batch.
        query: the id of the query, which its checkpoint folder keeps; None: Hudi wrote the commit.
    """

    batch: int
    query: str | None = None


class BatchStep(enum.Enum):
    """What becomes of a batch."""

    WRITE = "write"
    #: The table has it already.
    SKIP = "skip"
    #: Another query wrote a batch of this number or a later one: this one is written, and a warning says so.
    WRITE_BESIDE_ANOTHER_QUERY = "write beside another query"


def encode_label(identifier: str, label: BatchLabel) -> dict[str, str]:
    """Return the entries of a commit's metadata.

    Example:
        >>> encode_label("trips", BatchLabel(3, "q"))
        {'_hudi_streaming_sink_checkpoint': '{"trips": "3"}', 'lakefmt.streaming.query': '{"trips": "q"}'}
    """
    entries = {CHECKPOINT: json.dumps({identifier: str(label.batch)})}
    if label.query is not None:
        entries[QUERY] = json.dumps({identifier: label.query})
    return entries


def decode_label(identifier: str, metadata: Mapping[str, str]) -> BatchLabel | None:
    """Return the label that a commit has for an identifier, None if it has none.

    Raises:
        CorruptFile: the entry is no mapping to numbers.

    Example:
        >>> decode_label("a", {"_hudi_streaming_sink_checkpoint": '{"a": "7", "b": "1"}'})
        BatchLabel(batch=7, query=None)
    """
    batches, queries = _mapping(metadata, CHECKPOINT), _mapping(metadata, QUERY)
    if identifier not in batches:
        return None
    text, query = str(batches[identifier]), queries.get(identifier)
    number = text.removeprefix("-")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise CorruptFile(f"the commit's {CHECKPOINT} names no number of a batch: {text[:40]!r}")
    return BatchLabel(int(text), None if query is None else str(query))


def _mapping(metadata: Mapping[str, str], name: str) -> Mapping[str, object]:
    text = metadata.get(name)
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CorruptFile(f"the commit's {name} is no JSON mapping: {text[:80]!r}")
    return value


def choose_step(labels: Iterable[BatchLabel], query: str, batch: int) -> BatchStep:
    """Return what becomes of a batch.

    A commit of Hudi tells no query, so it counts for every query, as it does for Hudi; one of lakefmt counts for its own
    query.

    Args:
        labels: those of the stream's identifier in the table's commits, newest first; read as far as needed.
        query: the id of the query.
        batch: the number of the batch.

    Example:
        >>> [choose_step([BatchLabel(4, "new"), BatchLabel(9, "q")], "q", batch).name for batch in (9, 10)]
        ['SKIP', 'WRITE']
        >>> choose_step([BatchLabel(9, "q")], "new", 0).name
        'WRITE_BESIDE_ANOTHER_QUERY'
    """
    beside = False
    for label in labels:
        if label.query is None or label.query == query:
            if batch <= label.batch:
                return BatchStep.SKIP
            break
        beside = beside or batch <= label.batch
    return BatchStep.WRITE_BESIDE_ANOTHER_QUERY if beside else BatchStep.WRITE
