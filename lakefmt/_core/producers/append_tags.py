"""Named states of a table: a file that names a commit, and a savepoint that keeps it (effects; docs/append.md, Tags).

The savepoint is made first and deleted last: a process that dies in between leaves a state that is kept without a name,
never a name whose state may be cleaned. Making the tag again uses that savepoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Final

from lakefmt._core.arguments import check_texts, shown, text_argument
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import PutOutcome
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.undo import (
    RestoreResult,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    restore_table,
)
from lakefmt._core.values import InstantTime
from lakefmt.errors import AlreadyExistsError, CorruptFile, InstantNotFound, InvalidInputError, ObjectNotFound

__all__ = ["TAGS", "TableTags", "Tag", "load_tag"]

TAGS: Final = ".hoodie/.lakefmt/tags"
_NAME = re.compile(r"[\w][-\w.]{0,127}")
_MAX_BYTES: Final = 1 << 16
_COMMENT: Final = "lakefmt tag"


@dataclass(frozen=True, slots=True)
class Tag:
    """A named state; prints as one line.

    Attributes:
        name: its name.
        instant: requested time of the commit.
        created: when it was made.
    """

    name: str
    instant: InstantTime
    created: datetime

    def __str__(self) -> str:
        return f"tag {self.name}: instant {self.instant}, made at {self.created:%Y-%m-%d %H:%M:%S}Z"


def _file_of(name: object) -> str:
    """Return where a tag is stored.

    Raises:
        InvalidInputError: it is no name of a tag.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"a tag has 1 to 128 letters, digits, '_', '-' and '.', and no '-' or '.' first: {shown(name)}"
        )
    if name.isascii() and name.isdigit():
        raise InvalidInputError(f"the tag {name} would read as an instant: give it a letter")
    return f"{TAGS}/{name}.json"


def load_tag(client: TableClient, name: str) -> Tag:
    """Return a tag.

    Raises:
        InstantNotFound: there is none of that name.
        CorruptFile: its file is damaged.
    """
    try:
        return _decoded(name, client.store.read(_file_of(name), _MAX_BYTES))
    except ObjectNotFound:
        raise InstantNotFound(f"the table has no tag {name!r}; table.tags.list() names those there are") from None


def _decoded(name: str, data: bytes) -> Tag:
    try:
        body = json.loads(data)
        created = datetime.fromisoformat(body["created"])
        instant = body["instant"]
        if (
            not isinstance(instant, str)
            or not instant.isascii()
            or not instant.isdigit()
            or len(instant) not in (14, 17)
        ):
            raise ValueError("no instant")
        return Tag(name, InstantTime(instant), created.astimezone(UTC))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise CorruptFile(f"{TAGS}/{name}.json does not name a commit: delete it and make the tag again") from None


class TableTags:
    """The tags of a table: ``create``, ``list``, ``delete``, ``restore`` and ``create_daily``."""

    def __init__(self, client: TableClient, writing: AbstractContextManager[object]) -> None:
        self._client = client
        self._writing = writing

    def create(self, name: str, instant: str | None = None, *, options: Mapping[str, object] | None = None) -> Tag:
        """Name the state of a commit, and keep it from being cleaned.

        Args:
            name: 1 to 128 letters, digits, ``_``, ``-`` and ``.``.
            instant: the commit's time; None: the newest.
            options: settings of the call.

        Raises:
            AlreadyExistsError: another commit has that name.
            InstantNotFound: the timeline has no such commit.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-tags", data=pa.table({"n": [1]}), kind="append")
            >>> _ = t.append(pa.table({"n": [1]}))
            >>> tag = t.tags.create("first")
            >>> _ = t.append(pa.table({"n": [2]}))
            >>> t.as_of(tag="first").read()["n"].to_pylist()
            [1]
        """
        path = _file_of(name)
        check_texts(instant=instant)
        open_write_client(self._client, options)  # a bad option is refused before anything is there
        with self._writing:
            commit = self._commit(instant)
            with suppress(InstantNotFound):
                return self._same(load_tag(self._client, name), commit)
            with suppress(AlreadyExistsError):
                create_savepoint(self._client, commit, _COMMENT, "", options)
            tag = Tag(name, commit, self._client.clock.now().astimezone(UTC))
            body = {"instant": tag.instant, "created": tag.created.isoformat()}
            if self._client.store.put_if_absent(path, json.dumps(body).encode()) is not PutOutcome.DONE:
                return self._same(load_tag(self._client, name), commit)
            return tag

    def _same(self, stored: Tag, commit: InstantTime) -> Tag:
        if stored.instant != commit:
            raise AlreadyExistsError(f"the tag {stored.name!r} names instant {stored.instant} already")
        return stored

    def _commit(self, instant: str | None) -> InstantTime:
        timeline = self._client.load().timeline
        if instant is None:
            if timeline.latest_commit is None:
                raise InstantNotFound("the table has no commit to name")
            return timeline.latest_commit.time
        return timeline.find(instant).time

    def list(self) -> tuple[Tag, ...]:
        """Return the tags, by the time of their commits.

        Raises:
            CorruptFile: the file of one is damaged.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-tags-list", data=pa.table({"n": [1]}), kind="append")
            >>> _ = t.append(pa.table({"n": [1]})), t.tags.create("first")
            >>> [tag.name for tag in t.tags.list()]
            ['first']
        """
        store = self._client.store
        names = [each.name for each in store.list(TAGS, recursive=False) if each.name.endswith(".json")]
        tags = [_decoded(name.rpartition("/")[2].removesuffix(".json"), store.read(name, _MAX_BYTES)) for name in names]
        return tuple(sorted(tags, key=lambda tag: (tag.instant, tag.name)))

    def delete(self, name: str, *, options: Mapping[str, object] | None = None) -> None:
        """Delete a tag; its savepoint goes with it, unless another tag or another writer keeps it.

        Args:
            name: the tag.
            options: settings of the call.

        Raises:
            InstantNotFound: there is no such tag.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-tags-delete", data=pa.table({"n": [1]}), kind="append")
            >>> _ = t.append(pa.table({"n": [1]})), t.tags.create("first")
            >>> t.tags.delete("first")
            >>> t.tags.list(), t.savepoints()
            ((), ())
        """
        open_write_client(self._client, options)  # a bad option is refused before the tag is deleted
        with self._writing:
            tag = load_tag(self._client, name)
            self._client.store.delete([_file_of(name)])
            is_shared = any(each.instant == tag.instant for each in self.list())
            savepoints = [each for each in list_savepoints(self._client) if each.instant == tag.instant]
            if savepoints and savepoints[0].comment == _COMMENT and not is_shared:
                with suppress(InstantNotFound):
                    delete_savepoint(self._client, tag.instant, options)

    def restore(self, name: str, *, options: Mapping[str, object] | None = None) -> RestoreResult:
        """Bring the state of a tag back: later commits are undone.

        Args:
            name: the tag.
            options: settings of the call.

        Raises:
            InstantNotFound: there is no such tag.
            WriterActive: another writer is at work.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-tags-restore", data=pa.table({"n": [1]}), kind="append")
            >>> _ = t.append(pa.table({"n": [1]})), t.tags.create("first"), t.append(pa.table({"n": [2]}))
            >>> _ = t.tags.restore("first")
            >>> t.read()["n"].to_pylist()
            [1]
        """
        with self._writing:
            return restore_table(self._client, load_tag(self._client, name).instant, options)

    def create_daily(self, *, keep: int | None = None, prefix: str = "") -> Tag | None:
        """Name the newest commit after today's date, unless today has a tag; for a job that runs every day.

        Args:
            keep: delete the oldest tags made so, until this many are left; None: keep all.
            prefix: put in front of the date.

        Returns:
            The tag; None when today has one, or the table has no commit.

        Raises:
            InvalidInputError: `keep` is no such number, or `prefix` cannot be part of a name.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-tags-daily", data=pa.table({"n": [1]}), kind="append")
            >>> _ = t.append(pa.table({"n": [1]}))
            >>> t.tags.create_daily(keep=7, prefix="day-").name.startswith("day-2"), t.tags.create_daily(prefix="day-")
            (True, None)
        """
        if keep is not None and (type(keep) is not int or keep < 1):
            raise InvalidInputError(f"keep takes a number from 1 on, not {shown(keep)}")
        name = f"{text_argument(prefix, 'prefix')}{self._client.clock.now().astimezone(UTC):%Y-%m-%d}"
        pattern = re.compile(re.escape(prefix) + r"\d{4}-\d\d-\d\d")
        _file_of(name)
        daily = [tag for tag in self.list() if pattern.fullmatch(tag.name)]
        new_tag = None
        if all(tag.name != name for tag in daily) and self._client.load().timeline.latest_commit is not None:
            new_tag = self.create(name)
            daily.append(new_tag)
        for tag in sorted(daily, key=lambda each: each.name)[: -keep if keep else 0]:
            self.delete(tag.name)
        return new_tag
