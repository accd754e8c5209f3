"""``table.stream`` and ``table.consumers``: open a stream; list, reset and delete consumers (effects; docs/consumers.md)."""

from __future__ import annotations

import builtins
import re
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from lakefmt._core.arguments import check_texts, text_argument
from lakefmt._core.consumers.planning import CommitFinder
from lakefmt._core.consumers.position import StartLike, check_consumer_id, check_shard, parse_start
from lakefmt._core.consumers.progress import (
    as_its_shards,
    change_consumer,
    completion_moment,
    consumer_name,
    is_active,
    load_consumer,
    record_of,
    start_position,
)
from lakefmt._core.consumers.stream import StreamLag
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.timeline.consumers import CONSUMERS, ConsumerRecord, expiry_of
from lakefmt.errors import ConsumerActive, InvalidInputError, ObjectNotFound

if TYPE_CHECKING:
    from lakefmt._core.consumers.position import (
        StartLike,
    )

__all__ = [
    "ConsumerInfo",
    "TableConsumers",
]

_NAME: Final = re.compile(r"(?P<id>[^@/]+)(?:@(?P<number>[0-9]{1,5})-of-(?P<count>[0-9]{1,5}))?\.json")


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer, or one of its shards; prints as one line.

    Attributes:
        id: its id.
        shard: (i, n) for one of its shards; None: it reads all buckets.
        next_start: completion time (requested time in version 6) up to which it has read.
        instant: requested time of the last commit that it has read to its end; "" for none.
        mode: ``exactly_once`` or ``at_least_once``; ``running``: a stream without an id.
        updated: when it was last known to be alive; None: not stored.
        owner: who reads at present; "" without a reader.
        is_active: the owner is alive.
        expires: when the table stops keeping rows for it; None: never.
        is_expired: it has.
        lag: how far it is behind the table.
    """

    id: str
    shard: tuple[int, int] | None
    next_start: str
    instant: str
    mode: str
    updated: datetime | None
    owner: str
    is_active: bool
    expires: datetime | None
    is_expired: bool
    lag: StreamLag

    def __str__(self) -> str:
        shard = "" if self.shard is None else f" shard {self.shard[0]} of {self.shard[1]}"
        state = "expired" if self.is_expired else "active" if self.is_active else "idle"
        return f"{self.id}{shard}: {state}, read up to {self.next_start}, {self.lag}"


class TableConsumers:
    """The consumers of a table; ``Table.consumers``.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-consumers", schema=pa.schema([("id", pa.int64())]))
        >>> _ = t.insert(pa.table({"id": [1, 2]}))
        >>> t.consumers.reset("report", to="earliest")
        >>> [(c.id, c.lag.instants) for c in t.consumers.list()]
        [('report', 1)]
        >>> t.consumers.delete("report")
        ['report']
    """

    def __init__(self, client: TableClient) -> None:
        self._client = client

    def list(self) -> list[ConsumerInfo]:
        """Return all consumers with what they have not read yet: instants, bytes, and seconds behind.

        Raises:
            CorruptFile: the file of a consumer is damaged.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-consumers-list", schema=pa.schema([("id", pa.int64())]))
            >>> _ = t.insert(pa.table({"id": [1]}))
            >>> t.consumers.reset("report", to="latest")
            >>> [(each.id, each.lag.instants, each.is_active) for each in t.consumers.list()]
            [('report', 0, False)]
        """
        now, finder = self._client.clock.now(), CommitFinder(self._client)
        infos = []
        for name, consumer_id, shard in self._names():
            record = load_consumer(self._client, name)
            if record is not None:
                infos.append(self._info(consumer_id, shard, record, now, finder))
        return infos

    def _names(self) -> builtins.list[tuple[str, str, tuple[int, int] | None]]:
        listed = sorted(item.name for item in self._client.store.list(CONSUMERS, recursive=False))
        names = []
        for name in listed:
            match = _NAME.fullmatch(name.rpartition("/")[2])
            if match is not None:
                shard = None if match["number"] is None else (int(match["number"]), int(match["count"]))
                names.append((name, match["id"], shard))
        return names

    def _info(
        self,
        consumer_id: str,
        shard: tuple[int, int] | None,
        record: ConsumerRecord,
        now: datetime,
        finder: CommitFinder,
    ) -> ConsumerInfo:
        instants, num_bytes, first = finder.lag(record.next_start)
        moment = completion_moment(self._client, first)
        seconds = 0.0 if moment is None else max(0.0, (now - moment).total_seconds())
        expires = None if record.updated is None else record.updated + expiry_of(record)
        return ConsumerInfo(
            consumer_id,
            shard,
            record.next_start,
            record.instant,
            record.mode,
            record.updated,
            record.owner,
            is_active(record, now),
            expires,
            expires is not None and now > expires,
            StreamLag(instants, num_bytes, seconds),
        )

    def reset(
        self,
        id: str,
        to: StartLike = "earliest",
        *,
        shard: tuple[int, int] | None = None,
        force: bool = False,
        create: bool = True,
    ) -> None:
        """Set where a consumer goes on, and make it if there is none of that id.

        Args:
            id: of the consumer.
            to: as ``start`` of ``Table.stream``.
            shard: of one of its shards; None: of the consumer that reads all buckets.
            force: also when a reader uses this id; that reader's next progress is refused.
            create: make the consumer if there is none of that id; False: refuse, as the command line does by default.

        Raises:
            ConsumerActive: a reader uses this id.
            ObjectNotFound: there is none of that id, and `create` is False.
            InvalidInputError: `to` is a watermark, or no place where a stream can begin.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-consumers-reset", schema=pa.schema([("id", pa.int64())]))
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> t.consumers.reset("report", to="earliest")
            >>> with t.stream(follow=False, consumer_id="report") as stream:
            ...     sum(batch.rows.num_rows for batch in stream)
            2
        """
        name, start = consumer_name(check_consumer_id(id), check_shard(shard)), parse_start(to)
        if start.watermark is not None:
            raise InvalidInputError("a consumer is reset to a word, an instant, a time or a stream's position")
        begin = start_position(self._client, CommitFinder(self._client), start)
        position = as_its_shards(self._client, id, check_shard(shard), begin)

        def change(record: ConsumerRecord | None) -> ConsumerRecord:
            if record is None and not create:
                raise ObjectNotFound(self._no_consumer(id))
            self._refuse_active(id, record, force)
            released_record = record or ConsumerRecord(position.done)
            released_record = replace(
                released_record, owner="", process="", filter="", updated=self._client.clock.now()
            )
            return record_of(position, released_record)

        change_consumer(self._client, name, change)

    def delete(self, id: str, *, exclude: str | None = None, force: bool = False) -> builtins.list[str]:
        """Remove consumers with their shards, and return the ids of those that were removed.

        Args:
            id: the id, or a pattern such as ``"report-*"``.
            exclude: a pattern of ids that stay.
            force: also when a reader uses this id; that reader's next progress is refused.

        Raises:
            ConsumerActive: a reader uses one of the ids; none was removed.
            ObjectNotFound: there is none of that id.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-consumers-delete", schema=pa.schema([("id", pa.int64())]))
            >>> _ = t.insert(pa.table({"id": [1]}))
            >>> for name in ("report-a", "report-b", "export"): t.consumers.reset(name)
            >>> t.consumers.delete("report-*", exclude="*-b")
            ['report-a']
        """
        check_texts(id=text_argument(id, "id"), exclude=exclude)
        matches = [
            (name, consumer_id)
            for name, consumer_id, _ in self._names()
            if fnmatchcase(consumer_id, id) and not (exclude and fnmatchcase(consumer_id, exclude))
        ]
        if not matches and not set(id) & set("*?["):
            raise ObjectNotFound(self._no_consumer(id))
        for name, consumer_id in matches:
            self._refuse_active(consumer_id, load_consumer(self._client, name), force)
        self._client.store.delete([name for name, _ in matches])
        return sorted({consumer_id for _, consumer_id in matches})

    def _no_consumer(self, id: str) -> str:
        shards = [shard for _, consumer_id, shard in self._names() if consumer_id == id]
        if shards:
            shards_text = ", ".join("no shard" if shard is None else f"{shard[0]} of {shard[1]}" for shard in shards)
            return f"the consumer {id!r} has other shards than the one named: {shards_text}"
        known = sorted({consumer_id for _, consumer_id, _ in self._names()})
        near = get_close_matches(id, known, 1)
        hint = f": did you mean {near[0]!r}?" if near else "; see consumers.list()"
        return f"the table has no consumer {id!r}{hint}"

    def _refuse_active(self, id: str, record: ConsumerRecord | None, force: bool) -> None:
        if record is not None and not force and is_active(record, self._client.clock.now()):
            raise ConsumerActive(f"a reader uses the consumer {id!r}: end that reader first, or give force=True")
