"""JSON that a server gives over HTTP as a source: its pages, and the rows whose field has grown since the last round (effects).

A round has all pages: a server gives them in an order of its own, so that no page but the last says that everything
before it came. Where the rows come in the order of the field, a round may end behind any page, and the next one asks
from the value before the last one on. What is updated without a larger value, and what is deleted, is not seen; a row
that comes again with the largest value is told from others by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import logging
import math
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass
from lakefmt._core.ingest.api import SOURCE, Checkpoint, RoundRows, SourceBatch, check_source, rejected_records
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.write.ingest import rows_of_dicts
from lakefmt.errors import CorruptFile, InvalidInputError, SourceRefused, SourceUnavailable, UnknownSetting

__all__ = ["HttpOptions", "HttpSource", "open_http_source"]

_log = logging.getLogger("lakefmt.ingest")

_PREFIX: Final = "http."
_MEMORY: Final = 32 << 20
_LONGEST_PAUSE: Final = 60.0
#: The longest ``Retry-After`` in seconds that a request waits for; behind a longer one it fails, and the job tries again later.
_LONGEST_WAIT: Final = 300.0
#: Answers that may be others a little later.
_PASSING: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_MOST_REMEMBERED: Final = 100_000
_VALUE: Final = "value"
_SEEN: Final = "seen"
_BAD: Final = "bad"
_FROM: Final = "from"
_PAGES: Final = ("none", "link", "cursor", "number")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: What stands in a URL as it is.
_PLAIN: Final = "%:/?#[]@!$&'()*+,;=~"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET: Final = re.compile(r"auth|cookie|key|password|secret|token", re.IGNORECASE)
_LINK: Final = re.compile(r"<([^>]*)>((?:\s*;[^,;]*)*)")
_NEXT: Final = re.compile(r";\s*rel\s*=\s*\"?[^\";]*\bnext\b", re.IGNORECASE)

Record = dict[str, Any]


@dataclass(frozen=True)
class HttpOptions:
    """How a server is asked.

    Attributes:
        format: ``"json"`` or ``"jsonl"``; None: the answer's type tells.
        records: where in an answer the list of rows is: names with dots between; "": it is the answer.
        column: the field of rows that grows; None: every round has all rows.
        parameter: of the URL, for the largest value so far; None: the server is not told.
        start: the first value of the parameter.
        order: of the rows: ``"ascending"``, by `column`, or ``"any"``.
        nulls: what becomes of rows without a value in `column`: ``"error"`` or ``"skip"``.
        pages: how they follow each other: ``"link"``, the header ``Link`` with ``rel="next"``; ``"cursor"``, a field of the answer;
            ``"number"``; ``"none"``.
        cursor: where in an answer the cursor of the next page is.
        page_parameter: of the URL, for the cursor or the number of the page; None: the cursor is a URL.
        first_page: its number.
        headers: of requests, with their secrets.
        query: more parameters of the URL, with their secrets.
        timeout: seconds without an answer.
        max_bytes: the largest body of an answer.
        retries: how often a request is repeated that failed for now.
    """

    format: str | None = None
    records: str = ""
    column: str | None = None
    parameter: str | None = None
    start: str | None = None
    order: str = "any"
    nulls: str = "error"
    pages: str = "link"
    cursor: str = ""
    page_parameter: str | None = None
    first_page: int = 1
    headers: Mapping[str, str] | None = None
    query: Mapping[str, str] | None = None
    timeout: float = 60.0
    max_bytes: int = 32 << 20
    retries: int = 5


class _Answer(NamedTuple):
    body: bytes
    headers: Message


class _Page(NamedTuple):
    """The rows of an answer, what of it is none with its reason, the answer itself, and its digest."""

    records: list[Record]
    rejected: list[tuple[str, bytes]]
    value: Any
    digest: bytes


class HttpSource:
    """A source that reads rows from JSON answers of an HTTP server.

    Args:
        url: of the first page, without a secret.
        options: how the server is asked.
        time_source: how time passes.
    """

    def __init__(self, url: str, options: HttpOptions, time_source: TimeSource | None = None) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError as error:
            raise InvalidInputError(f"the URL of the source cannot be read: {error}") from None
        if not is_url:
            raise InvalidInputError(f"{shown(url)} is no URL like https://api.example/v1/orders")
        if parts.username is not None or parts.password is not None:
            raise InvalidInputError(
                "the URL of the source has a user or password: give http.header.Authorization, with ${NAME} of the environment"
            )
        self._url, self._options, self._time = url, options, time_source or SystemTimeSource()
        self._name = parts._replace(query="", fragment="").geturl()
        digest = hashlib.blake2b(parts.query.encode(), digest_size=8).hexdigest() if parts.query else ""
        self._identity = " ".join(filter(None, (self._name, digest, options.column)))
        self._opener = urllib.request.build_opener(_NoRedirect())
        self.table_schema: pa.Schema | None = None
        self._round: _HttpRound | None = None
        self._warned = False

    @property
    def name(self) -> str:
        """Return what messages call it; parameters may have secrets."""
        return self._name

    def schema(self) -> pa.Schema | None:
        """Return None: the rows tell."""
        return None

    def close(self) -> None:
        """Let go of the rows of the last round; each request has a connection of its own."""
        if self._round is not None:
            self._round.close()
            self._round = None

    def plan(self, after: Checkpoint | None, limit: int | None) -> _HttpRound | None:
        """Read the pages, and choose the rows that are new.

        Args:
            after: of the newest commit that has one; None: all rows are new.
            limit: so many rows end a round behind their page, if rows come in the order of the field; else it has all pages.

        Raises:
            SourceUnavailable: the server does not answer, after all attempts.
            SourceRefused: it says no, or what it says cannot be followed.
            InvalidInputError: its answer is no such JSON.
        """
        if after is not None:
            check_source(after, self._identity)
        self.close()
        new_round = self._round = _HttpRound(
            self._name, self._identity, self._options, _Position.of(after, self._options)
        )
        ends_early = limit is not None and self._options.order == "ascending"
        if limit is not None and not ends_early and not self._warned:
            self._warned = True
            _log.warning("%s: a round has all pages, however many rows: http.order=ascending bounds it", self._name)
        for page in self._pages(new_round.place.asked):
            new_round.take(page, self.table_schema)
            if ends_early and limit is not None and new_round.num_rows >= limit:
                new_round.end_early()
                break
        return new_round if new_round.has_news() else None

    # --- pages ------------------------------------------------------------------------------------------------------------

    def _pages(self, since: Any) -> Iterator[_Page]:
        options = self._options
        parameters = dict(options.query or {})
        value = options.start if since is None else str(since)
        if options.parameter is not None and value is not None:
            parameters[options.parameter] = value
        number, visited, before = options.first_page, set[str](), b""
        first = {options.page_parameter or "page": str(number)} if options.pages == "number" else {}
        url = self._with_parameters(self._url, parameters | first)
        while True:
            answer = self._ask(url)
            page = self._read(answer)
            if options.pages == "number":
                if not page.records and not page.rejected:
                    return
                if page.digest == before:
                    raise SourceRefused(
                        f"{self._name}: page {number} is the one before again: does the server know the parameter?"
                    )
                before, number = page.digest, number + 1
                following: str | None = self._with_parameters(
                    self._url, {**parameters, **first, next(iter(first)): str(number)}
                )
            else:
                following = self._following(url, answer, page.value, parameters)
            yield page
            if following is None:
                return
            if following in visited:
                raise SourceRefused(f"{self._name}: its pages go round: one names a page that has come")
            visited.add(following)
            url = following

    def _following(self, url: str, answer: _Answer, value: Any, parameters: Mapping[str, str]) -> str | None:
        """Return the URL of the next page; None: there is none."""
        options = self._options
        if options.pages == "link":
            links = ", ".join(answer.headers.get_all("Link") or ())
            target = next((match[1] for match in _LINK.finditer(links) if _NEXT.search(match[2])), None)
            return None if target is None else self._same_server(url, target)
        if options.pages != "cursor":
            return None
        cursor = _at(value, options.cursor)
        if cursor in (None, "", False):
            return None
        if isinstance(cursor, bool) or not isinstance(cursor, str | int):
            raise SourceRefused(
                f"{self._name}: the cursor {options.cursor} is {shown(cursor)}, neither a text nor a number"
            )
        if options.page_parameter is None:
            return self._same_server(url, str(cursor))
        return self._with_parameters(self._url, {**parameters, options.page_parameter: str(cursor)})

    def _same_server(self, url: str, target: str) -> str:
        """Return the URL that an answer names as the next one; headers with secrets go to no other server.

        Raises:
            SourceRefused: it is of another one, or none.
        """
        try:
            following = urllib.parse.urljoin(url, target)
            here, there = urllib.parse.urlsplit(self._url), urllib.parse.urlsplit(following)
        except ValueError as error:
            raise SourceRefused(f"{self._name}: the next page is no URL: {error}") from None
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise SourceRefused(f"{self._name}: the next page is on another server, {shown(there.netloc)}")
        # What the server repeats of the parameters is not relied on where they have secrets.
        return self._with_parameters(following, dict(self._options.query or {}))

    @staticmethod
    def _with_parameters(url: str, parameters: Mapping[str, str]) -> str:
        if not parameters:
            return urllib.parse.urldefrag(url).url
        parts = urllib.parse.urlsplit(url)
        pairs = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        remaining = [(name, value) for name, value in pairs if name not in parameters]
        return parts._replace(query=urllib.parse.urlencode([*remaining, *parameters.items()]), fragment="").geturl()

    # --- one answer -------------------------------------------------------------------------------------------------------

    def _ask(self, url: str) -> _Answer:
        """Return an answer; a request that failed for now is repeated, later each time, or when the server says.

        Raises:
            SourceUnavailable: all attempts failed.
            SourceRefused: the server says no, sends elsewhere, or its answer is too large.
        """
        options = self._options
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "lakefmt"}
        plain = urllib.parse.quote(url, safe=_PLAIN)
        request = urllib.request.Request(plain, headers={**headers, **(options.headers or {})})  # noqa: S310  (checked)
        attempt = 0
        while True:
            wait: float | None = None
            try:
                with self._opener.open(request, timeout=options.timeout) as answer:
                    body = answer.read(options.max_bytes + 1)
                    if len(body) > options.max_bytes:
                        raise SourceRefused(
                            f"{self._name}: an answer has more than {options.max_bytes:,} bytes (http.max.bytes)"
                        )
                    if answer.headers.get("Content-Encoding", "identity") != "identity":
                        raise SourceRefused(f"{self._name}: the answer is compressed, which nobody asked for")
                    length = answer.headers.get("Content-Length", "")
                    if _DIGITS.fullmatch(length) and len(body) < int(length):
                        raise http.client.IncompleteRead(body)
                    return _Answer(body, answer.headers)
            except urllib.error.HTTPError as error:
                with error:
                    wait, failure = self._refusal(error)
            except (OSError, http.client.HTTPException) as error:
                failure = f"cannot be asked: {error}"
            attempt += 1
            if attempt > options.retries or (wait is not None and wait > _LONGEST_WAIT):
                raise SourceUnavailable(f"{self._name} {failure}")
            self._time.sleep(min(_LONGEST_PAUSE, 2.0 ** (attempt - 1)) if wait is None else wait)

    def _refusal(self, error: urllib.error.HTTPError) -> tuple[float | None, str]:
        """Return how long the server wants to be left alone, and what it said.

        Raises:
            SourceRefused: asking again would not help.
        """
        reason = f"answers {error.code}"
        if error.code not in _PASSING:
            where = error.headers.get("Location") if 300 <= error.code < 400 else None
            more = "" if where is None else f" and sends to {shown(where.partition('?')[0])}: give that URL"
            raise SourceRefused(f"{self._name} {reason}{more}")
        return _retry_after(error.headers.get("Retry-After")), reason

    def _read(self, answer: _Answer) -> _Page:
        """Return the rows of an answer.

        Raises:
            InvalidInputError: it is no JSON, or there are no rows where they should be.
        """
        options, name = self._options, self._name
        content_type = answer.headers.get_content_type()
        form = options.format or ("jsonl" if re.search(r"ndjson|jsonl|jsonlines", content_type) else "json")
        digest = hashlib.blake2b(answer.body, digest_size=16).digest()
        try:
            content = answer.body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{name}: the answer is no UTF-8: {error.reason}") from None
        rejected = list[tuple[str, bytes]]()
        if form == "jsonl":
            items = list[Any]()
            for line in filter(str.strip, content.split("\n")):
                try:
                    items.append(_parsed(line))
                except (ValueError, RecursionError) as error:
                    rejected.append((f"no JSON: {error}", line.encode()))
            value: Any = items
        else:
            try:
                value = _parsed(content)
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(f"{name}: the answer is no JSON: {error}") from None
            items = self._list(value)
        records = [each for each in items if isinstance(each, dict) and each]
        if len(records) < len(items):
            rejected += [
                ("no object with fields", json.dumps(each).encode())
                for each in items
                if not (isinstance(each, dict) and each)
            ]
        return _Page(records, rejected, value, digest)

    def _list(self, value: Any) -> list[Any]:
        path = self._options.records
        rows = _at(value, path)
        above, _, last = path.rpartition(".")
        holder = _at(value, above)
        if rows is None and isinstance(holder, dict) and last in holder:
            return []  # null in place of an empty list
        if isinstance(rows, list):
            return rows
        names = [str(key) for key, each in value.items() if isinstance(each, list)] if isinstance(value, dict) else []
        hint = f": say where, http.records={' or '.join(names)}" if names else ""
        raise InvalidInputError(
            f"{self._name}: there is no list of rows {f'at {path}' if path else 'in the answer'}{hint}"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A server that sends elsewhere is not followed: headers with secrets would go along."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _parsed(content: str) -> Any:
    return json.loads(content, parse_float=_finite, parse_constant=_finite)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is no number that a double holds")
    return value


def _at(value: Any, path: str) -> Any:
    """Return what is behind names with dots between; None: nothing.

    Example:
        >>> _at({"data": {"rows": [1]}}, "data.rows"), _at([2], ""), _at([2], "data")
        ([1], [2], None)
    """
    for name in filter(None, path.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _retry_after(header: str | None) -> float | None:
    """Return the seconds of a header ``Retry-After``; None: it says none."""
    if header is None:
        return None
    if _DIGITS.fullmatch(header.strip()):
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


# ------------------------------------------------------------------------------------------------------------------ rounds


class _Position(NamedTuple):
    """Where the last round was.

    Attributes:
        value: the largest one.
        seen: the digests of rows that had it; None: not known, all of them are new.
        text: of the checkpoint.
        bad: the digests of what was no row.
        asked: the value that the next request has.
    """

    value: Any = None
    seen: frozenset[bytes] | None = None
    text: str = ""
    bad: frozenset[bytes] = frozenset()
    asked: Any = None

    @classmethod
    def of(cls, after: Checkpoint | None, options: HttpOptions) -> _Position:
        """Return what a checkpoint says.

        Raises:
            CorruptFile: its details are damaged.
        """
        if after is None:
            return cls()
        stated, encoded_digests = after.details.get(_VALUE), after.details.get(_SEEN)
        try:
            bad = _digests(after.details.get(_BAD, ""))
            if options.column is None:
                return cls(text=after.text, bad=bad)
            if stated is None or encoded_digests is None:
                text_value = int(after.text) if after.text.lstrip("-").isdigit() else after.text
                return cls(text_value, asked=text_value)
            value, request_value = json.loads(stated), json.loads(after.details.get(_FROM, stated))
            for each in (value, request_value):
                if each is not None:
                    _order(each)
            return cls(value, _digests(encoded_digests), after.text, bad, request_value)
        except (ValueError, SourceRefused):
            raise CorruptFile(
                "what a checkpoint says of a URL is damaged: begin with a checkpoint of your own"
            ) from None


def _digests(encoded: str) -> frozenset[bytes]:
    """Return the digests that a checkpoint has."""
    joined = base64.b64decode(encoded, validate=True)
    return frozenset(joined[at : at + 8] for at in range(0, len(joined), 8))


def _joined(digests: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(sorted(digests))).decode()


def _order(value: Any) -> tuple[str, Any]:
    """Return what values are compared by: numbers, moments where a text is one, else texts; kinds are not compared with each other.

    Example:
        >>> _order("2026-01-01T00:00:00Z") < _order("2026-01-01T01:00:00.5+01:00"), _order(2) < _order(10)
        (True, True)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SourceRefused(f"the value {shown(value)} cannot be one that grows: take numbers, texts or times")
    if not isinstance(value, str):
        return "number", value
    try:
        moment = datetime.fromisoformat(value) if _DATE.match(value) else None
    except ValueError:
        moment = None
    if moment is None:
        return "text", value
    return ("time", moment) if moment.tzinfo is None else ("moment", moment)


class _HttpRound:
    """The new rows of all pages, held in memory or in a temporary file."""

    def __init__(self, name: str, identity: str, options: HttpOptions, position: _Position) -> None:
        self._name, self._identity, self._options, self.place = name, identity, options, position
        self._rows = RoundRows(_MEMORY)
        self._rejected = list[pa.RecordBatch]()
        self._pages = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._largest = position.value
        self._order = None if position.value is None else _order(position.value)
        #: Digests of rows with the largest value.
        self._seen = set[bytes](position.seen or ())
        #: How often a row came that has the largest value, and one that has the value of the last round.
        self._counts, self._taken = dict[bytes, int](), dict[bytes, int]()
        self._bad = set[bytes]()
        #: The second largest value so far: a round that ends early goes on from it.
        self._value_before = position.asked
        #: The value of the next request, in a tuple, if the round ended early; None: the largest value.
        self._asks_from: tuple[Any] | None = None
        self._last: tuple[str, Any] | None = None

    @property
    def num_rows(self) -> int:
        """How many rows are new."""
        return self._rows.num_rows

    def end_early(self) -> None:
        """End the round here. The next one asks from the second largest value, since more rows may have the largest one."""
        self._asks_from = (self._value_before,)

    def close(self) -> None:
        """Let go of the rows."""
        self._rows.close()

    def take(self, page: _Page, table_schema: pa.Schema | None) -> None:
        """Take the rows of a page that are new.

        Raises:
            SourceRefused: a row has no value in the column, or one that does not go with the others.
            InvalidInputError: the values of a column do not go together.
        """
        self._digest.update(page.digest)
        self._pages += 1
        for reason, payload in page.rejected:
            digest = hashlib.blake2b(payload, digest_size=8).digest()
            if digest not in self.place.bad:
                self._rejected.append(rejected_records([reason], [f"{self._name}#{digest.hex()}"], [payload]))
            self._bad.add(digest)
        new_rows = page.records if self._options.column is None else [row for row in page.records if self._is_new(row)]
        if new_rows:
            known = None if table_schema is None else lambda: table_schema
            for batch in rows_of_dicts(new_rows, known).to_batches():
                self._rows.add(batch)

    def _is_new(self, row: Record) -> bool:
        """Return whether a row was not taken by an earlier round; rows with the largest value are remembered."""
        value = _at(row, self._options.column or "")
        if value is None:
            if self._options.nulls == "skip":
                return False
            raise SourceRefused(
                f"{self._name}: a row has no value in {self._options.column!r}, and would never be taken: leave such rows out with http.nulls=skip"
            )
        order, last_order = _order(value), None if self.place.value is None else _order(self.place.value)
        if self._order is not None and order[0] != self._order[0]:
            raise SourceRefused(
                f"{self._name}: {shown(value)} and {shown(self._largest)} of {self._options.column!r} cannot be compared"
            )
        if self._options.order == "ascending":
            if self._last is not None and order < self._last:
                raise SourceRefused(
                    f"{self._name}: {shown(value)} of {self._options.column!r} comes behind a larger value: the rows are in another order "
                    "than http.order says"
                )
            self._last = order
        if last_order is not None and order < last_order:
            return False
        is_new = order != last_order or _digest(row, self._taken) not in (self.place.seen or ())
        if self._order is None or order > self._order:
            self._value_before = self._largest if self._order is not None else self._value_before
            self._largest, self._order = value, order
            self._seen.clear()
            self._counts.clear()
        if order == self._order:
            self._seen.add(_digest(row, self._counts))
        if len(self._seen) > _MOST_REMEMBERED:
            raise SourceRefused(
                f"{self._name}: more than {_MOST_REMEMBERED:,} rows have the value {shown(value)} of {self._options.column!r}: choose a field that "
                "tells rows apart"
            )
        return is_new

    def has_news(self) -> bool:
        """Return whether there is a row that was not taken before."""
        if self._options.column is None:
            return self.checkpoint.text != self.place.text
        return bool(self._rows.num_rows or self._rejected)

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the largest value, and the rows that had it; of a source without a column, what tells its answers from others."""
        details = {SOURCE: self._identity} | ({_BAD: _joined(self._bad)} if self._bad else {})
        if self._options.column is None:
            return Checkpoint(f"http-{self._digest.hexdigest()}", details)
        value = {_VALUE: json.dumps(self._largest), _SEEN: _joined(self._seen)}
        if self._asks_from is not None:
            value[_FROM] = json.dumps(self._asks_from[0])
        # An empty text would say that there is no checkpoint.
        return Checkpoint("none" if self._largest is None else str(self._largest) or "''", {**value, **details})

    @property
    def summary(self) -> str:
        """Return the range."""
        if self._options.column is None:
            return f"all rows of {self._name}, {self._pages} pages"
        return f"{self._options.column} from {self.place.value} to {self._largest}, {self._pages} pages"

    @property
    def expected_rows(self) -> int | None:
        """Return how many rows there are."""
        return self._rows.num_rows

    def batches(self) -> Iterator[SourceBatch]:
        """Read the rows, as often as they are asked for."""
        for batch in self._rows.batches():
            yield SourceBatch(batch)
        for rejected in self._rejected:
            yield SourceBatch(pa.RecordBatch.from_pylist([], pa.schema([])), rejected=rejected)


def _digest(row: Record, counts: dict[bytes, int]) -> bytes:
    """Return what tells a row from others; equal rows are counted."""
    digest = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=8).digest()
    number = counts[digest] = counts.get(digest, 0) + 1
    return digest if number == 1 else hashlib.blake2b(digest + number.to_bytes(8, "big"), digest_size=8).digest()


# ----------------------------------------------------------------------------------------------------------------- options


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"it is {' or '.join(choices)}")
        return value

    return parse


def _at_least(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if int(value) < least:
            raise ValueError(f"it is at least {least}")
        return int(value)

    return parse


def _seconds(value: str) -> float:
    if not 0 < float(value) < 1e6:
        raise ValueError("it is a positive number")
    return float(value)


#: Names behind the prefix → the field and how its text is read.
_READERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "format": ("format", _choice("json", "jsonl")),
    "records": ("records", str),
    "column": ("column", str),
    "parameter": ("parameter", str),
    "start": ("start", str),
    "order": ("order", _choice("any", "ascending")),
    "nulls": ("nulls", _choice("error", "skip")),
    "pages": ("pages", _choice(*_PAGES)),
    "cursor": ("cursor", str),
    "page.parameter": ("page_parameter", str),
    "page.first": ("first_page", _at_least(0)),
    "timeout.seconds": ("timeout", _seconds),
    "max.bytes": ("max_bytes", _at_least(1)),
    "retries": ("retries", _at_least(0)),
}


def parse_http_options(options: Mapping[str, str]) -> HttpOptions:
    """Return what properties say of a source over HTTP.

    Raises:
        UnknownSetting: one is unknown, its text has no meaning, or it has a secret that stands there.
        InvalidInputError: a variable of the environment is not set.

    Example:
        >>> parse_http_options({"http.records": "data", "http.column": "changed", "http.parameter": "since"}).column
        'changed'
    """
    values, headers, query = dict[str, Any](), dict[str, str](), dict[str, str]()
    for name, value in options.items():
        if not name.startswith(_PREFIX):
            continue
        plain = name.removeprefix(_PREFIX)
        section, _, parameter = plain.partition(".")
        if section in ("header", "query") and parameter:
            (headers if section == "header" else query)[parameter] = _from_environment(name, value)
            continue
        if plain not in _READERS:
            known = ", ".join([*_READERS, "header.NAME", "query.NAME"])
            raise UnknownSetting(f"{shown(name)} is no setting: behind {_PREFIX} stands one of {known}")
        field, read = _READERS[plain]
        try:
            values[field] = read(value)
        except ValueError as error:
            raise UnknownSetting(f"{name}={shown(value)}: {error}") from None
    parsed = HttpOptions(**values, headers=headers, query=query)
    if parsed.pages == "cursor" and not parsed.cursor:
        raise UnknownSetting("http.pages=cursor needs http.cursor, the field of the answer that has it")
    if parsed.column is None and (parsed.parameter or parsed.start or parsed.order != "any"):
        raise UnknownSetting("http.parameter, http.start and http.order need http.column, the field of rows that grows")
    return parsed


def _from_environment(name: str, template: str) -> str:
    """Return a text with the values of variables of the environment; it is in no message."""
    if _SECRET.search(name) and not _VARIABLE.search(template):
        raise UnknownSetting(f"{name} looks like a secret: put it into the environment, and give ${{NAME}} here")

    def value_of(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            raise InvalidInputError(f"{name}: the variable {match[1]} is not set in the environment")
        return value

    expanded = _VARIABLE.sub(value_of, template)
    if not expanded.isprintable() or not expanded.isascii():
        raise InvalidInputError(f"{name} has characters that no header or URL holds")
    return expanded


def open_http_source(
    url: str, options: Mapping[str, str], form: str | None = None, time_source: TimeSource | None = None
) -> HttpSource:
    """Return a source of JSON over HTTP.

    Args:
        url: of the first page.
        options: properties of the job.
        form: of answers, as the job has it.
        time_source: how time passes.

    Raises:
        UnknownSetting: an option is not valid.
        InvalidInputError: the URL is none, or a variable of the environment is not set.
    """
    properties = {"http.format": form, **options} if form is not None else options
    return HttpSource(url, parse_http_options(properties), time_source)
