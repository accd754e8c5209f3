"""What the tests of the page share: a page that is served, requests to it, and tables that Spark, we, and an enemy have made."""

from __future__ import annotations

import http.client
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakefmt
from lakefmt._core.page.server import PageServer
from lakefmt._core.page.tables import PageTables

DATA = Path(__file__).resolve().parents[1] / "data"
TOKEN = "a-token-of-the-tests-0123456789"
#: Small tables that Spark wrote, of every version and type.
BY_SPARK = (
    "judges/v6_cow_types_0150",
    "judges/v8_cow_evolved_102",
    "read/v6_cow_archived_0150",
    "read/v8_mor_archived_120",
    "read/v9_cow_cdc_120",
    "read/v9_cow_restore_120",
    "compaction/v8_mor_pending_compaction_120",
)
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(2)>",
    "{{ 7 * 7 }}{% raw %}",
    "\N{RIGHT-TO-LEFT OVERRIDE}evil\N{HEBREW LETTER ALEF}",
    "x" * 10_000,
    "emoji \N{GRINNING FACE} &amp; \x01\x1b[31m",
)


@dataclass
class Reply:
    """What the page answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Page:
    """A page that is served, and how it is asked."""

    def __init__(self, server: PageServer) -> None:
        self.server = server

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        token: str | None = TOKEN,
        body: bytes | None = None,
    ) -> Reply:
        """Send one request; the token is a bearer's unless it is None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Reply(answer.status, {k.casefold(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def facts(self, path: str) -> Any:
        """Return the facts of an address below ``/api/v1``."""
        reply = self.ask(f"/api/v1{path}")
        assert reply.status == 200, reply.text
        return reply.json()

    def post(self, path: str, form: str, **headers: str) -> Reply:
        """Send a form, as the page itself would."""
        sent = {"Origin": self.server.origin, "Content-Type": "application/x-www-form-urlencoded", **headers}
        return self.ask(path, method="POST", headers=sent, body=form.encode())


@contextmanager
def served(*paths: str | Path, **options: Any) -> Iterator[Page]:
    """Serve a page of some tables."""
    tables = {name: options.pop(name) for name in ("open_with", "storage_options", "journal") if name in options}
    with PageServer(PageTables([str(path) for path in paths], **tables), token=TOKEN, **options) as server:
        yield Page(server)


def unpack(name: str, into: Path) -> Path:
    """Unpack a table that Spark wrote; return its base."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(into)
    return into / Path(name).name


def make_table(path: Path, commits: int = 6, table_type: str = "mor") -> lakefmt.Table:
    """Make a table with commits, a compaction, a savepoint and a clean."""
    table = lakefmt.create_table(str(path), schema=SCHEMA, record_key="id", partition_by="city", table_type=table_type)
    for number in range(commits):
        ids = [f"k{place}" for place in range(number * 3, number * 3 + 12)]
        cities = [("oslo", "rome", "rio")[int(key[1:]) % 3] for key in ids]
        table.upsert(pa.table({"id": ids, "city": cities, "v": list(range(12))}, SCHEMA))
    table.savepoint(comment="kept")
    if table_type == "mor":
        table.compact()
    return table


def make_hostile_table(path: Path) -> lakefmt.Table:
    """Make a table whose values, partitions and commit metadata are those of an enemy."""
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("note", pa.string())])
    table = lakefmt.create_table(str(path), schema=schema, record_key="id", partition_by="part")
    parts = [text if len(text) < 100 else text[:150] for text in HOSTILE]
    rows = pa.table({"id": list(HOSTILE), "part": parts, "note": list(HOSTILE)}, schema)
    table.upsert(
        rows,
        commit_metadata={f"note{number}": text for number, text in enumerate(HOSTILE)} | {"large": "y" * 1_000_000},
    )
    return table


def id_of(page: Page, name: str = "") -> str:
    """Return the id of a table by its name; the first one without."""
    tables = page.facts("/tables")["tables"]
    return str(next(each["id"] for each in tables if not name or each["name"] == name))
