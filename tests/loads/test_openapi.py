"""What the description of the interface says holds for requests that nobody would send: its paths, its headers with any values, any bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.loads.bodies import Request
from lakefmt._core.loads.protocol import openapi_document
from lakefmt._core.loads.service import LoadService
from tests.example_counts import examples
from tests.loads.loads_kit import Base, Client

OPERATIONS = [
    (method, path, operation)
    for path, methods in openapi_document()["paths"].items()
    for method, operation in methods.items()
]
#: Values that lead further than any text does.
USUAL: dict[str, list[str]] = {
    "db": ["db", "other", "..", "d/b"],
    "table": ["t", "u", "", ".hoodie"],
    "label": ["one", "two", "x" * 129, "a/b", "é"],
    "format": ["csv", "json", "gzip", "parquet"],
    "column_separator": [",", "\\x01", "||", "0xzz", "\\n"],
    "row_delimiter": ["\n", ";;", "0x0d0a", ","],
    "columns": [
        "id,v",
        "id,v,n,__op",
        "id,raw,v=upper(raw)",
        "id,n=id%0",
        "v=sleep(1)",
        "id,id",
        "id,raw,n=cast(raw as double)",
    ],
    "where": ["id > 1", "v is null", "id", "1/0 = 1", "((", "id = (select 1)"],
    "jsonpaths": ['["$.id"]', '["$.id","$.v","$.n","$.__op"]', "[", "[1]"],
    "json_root": ["$.rows", "$", "x"],
    "enclose": ['"', "ab"],
    "escape": ["\\", "ab"],
    "timezone": ["Asia/Shanghai", "Mars/Base"],
    "merge_condition": ["n", "no"],
    "transaction_type": ["multi", "single"],
    "lakefmt_operation": ["insert", "bulk_insert", "drop"],
    "compression": ["gzip", "zstd", "lz4", "rar"],
}
ANY = st.one_of(
    st.sampled_from(["", "true", "false", "0", "1", "-1", "0.5", "nan", "99999999999999999999"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
)
BODIES = st.one_of(
    st.sampled_from(
        [
            *(
                b"",
                b"1,a,1\n2,b,2\n",
                b"1,a,1,1\n",
                b'{"id":1,"v":"a"}',
                b'[{"id":1},{"id":2,"__op":1}]',
                b'{"rows":[{"id":3}]}',
            ),
            *(b"x,y,z\n", b"\x1f\x8b\x08\x00", b'{"id":' + b"[" * 300, b'1,"a\n2,b\n', b"\xff\xfe,\x00\n"),
        ]
    ),
    st.binary(max_size=60),
)
STATUSES = {
    *("OK", "FAILED", "LABEL_ALREADY_EXISTS", "TXN_NOT_EXISTS", "TXN_IN_PROCESSING", "INTERNAL_ERROR"),
    *("Success", "Fail", "Label Already Exists"),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, dict[str, str], dict[str, str], bytes]:
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    given: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
    for parameter in operation["parameters"]:
        name = parameter["name"]
        # What a request cannot do without is there, and mostly right.
        if parameter["required"] or name in ("db", "table", "label") or draw(st.integers(0, 4)) == 0:
            usual = st.sampled_from(USUAL.get(name, ["true", "1"]))
            rights = st.just(USUAL[name][0]) if name in ("db", "table") else usual
            given[parameter["in"]][name] = draw(st.one_of(rights, rights, rights, usual, ANY))
    for name, value in given["path"].items():
        path = path.replace("{" + name + "}", value.replace("/", "_") or "_")
    headers = {name: value.strip() for name, value in given["header"].items()}
    return method.upper(), path, given["query"], headers, draw(BODIES) if "requestBody" in operation else b""


def answered(service: LoadService, request: tuple[str, str, dict[str, str], dict[str, str], bytes]) -> tuple[int, Any]:
    method, path, query, headers, body = request
    client = Client(service)
    reply = service.handle(
        Request(method, path, query, headers, io.BytesIO(body), client.user, len(body), "http://127.0.0.1:1")
    )
    return reply.status, reply.body


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=12))
def test_every_request_of_the_description_has_an_answer_of_the_description(
    asked: list[tuple[str, str, dict[str, str], dict[str, str], bytes]],
) -> None:
    base = Base()
    service = base.service()
    for request in asked:
        status, body = answered(service, request)
        assert status in (200, 404), request
        if isinstance(body, Mapping):
            json.dumps(dict(body)).encode()  # it can be sent
            said = body.get("Status", body.get("status"))
            assert said in STATUSES, (request, body)
            assert "internal error" not in str(body.get("Message", "")), (request, body)
    # It still answers, and what a client does after that is done.
    assert answered(service, ("GET", "/api/health", {}, {}, b""))[1]["status"] == "OK"
    told = {"label": "last", "column_separator": ","}
    assert answered(service, ("PUT", "/api/db/t/_stream_load", {}, told, b"77,a,1\n"))[1]["Status"] == "Success"
    assert 77 in [row[0] for row in base.rows()]
