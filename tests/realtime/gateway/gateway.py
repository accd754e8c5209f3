"""The service that the SDK's released client talks to, in front of lakefmt tables: for tests only.

Run in the environment of tools/sdk_env.py, which has the client, its protocol definitions and lakefmt:

    python -m tests.realtime.gateway.gateway FOLDER [--refuse CODE=TIMES …]

prints ``{"service": "127.0.0.1:PORT"}`` when it serves, and ends when its standard input does; then it prints what it
counted. HTTP carries login, control calls and routes; rows come through gRPC and go into streams of lakefmt, durable
before the client hears of success. A refused request comes back with CODE so many times before it is taken.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pyarrow as pa
from clickzetta_ingestion._proto import data_type_pb2 as types
from clickzetta_ingestion._proto import ingestion_pb2 as v1
from clickzetta_ingestion._proto import ingestion_v2_pb2 as v2
from clickzetta_ingestion._proto import ingestion_v2_pb2_grpc as v2_grpc
from google.protobuf.json_format import MessageToJson, Parse

from lakefmt.errors import LakefmtError
from lakefmt.realtime import Connection, RealtimeStream, connect
from lakefmt.realtime.statements import SqlField, SqlKind, decode_types
from lakefmt.realtime.stream import RealtimeOptionsBuilder

INSTANCE = 7
#: Kinds whose values the client sends as they are; its converters of the others are faulty.
CATEGORIES = {
    SqlKind.BOOLEAN: types.BOOLEAN,
    SqlKind.INT8: types.INT8,
    SqlKind.INT16: types.INT16,
    SqlKind.INT32: types.INT32,
    SqlKind.INT64: types.INT64,
    SqlKind.FLOAT: types.FLOAT32,
    SqlKind.DOUBLE: types.FLOAT64,
    SqlKind.DECIMAL: types.DECIMAL,
    SqlKind.CHAR: types.CHAR,
    SqlKind.VARCHAR: types.VARCHAR,
    SqlKind.STRING: types.STRING,
    SqlKind.JSON: types.JSON,
    SqlKind.BINARY: types.BINARY,
    SqlKind.DATE: types.DATE,
    SqlKind.TIMESTAMP_LTZ: types.TIMESTAMP_LTZ,
    SqlKind.ARRAY: types.ARRAY,
    SqlKind.STRUCT: types.STRUCT,
}


def data_type(field: SqlField, number: int = 0) -> types.DataType:
    """Return a column's type as the protocol has it."""
    sql = field.type
    message = types.DataType(category=CATEGORIES[sql.kind], nullable=field.nullable, field_id=number)
    if sql.kind is SqlKind.DECIMAL:
        message.decimalTypeInfo.precision, message.decimalTypeInfo.scale = sql.precision, sql.scale
    elif sql.kind is SqlKind.CHAR:
        message.charTypeInfo.length = sql.length
    elif sql.kind is SqlKind.VARCHAR:
        message.varCharTypeInfo.length = sql.length
    elif sql.kind is SqlKind.TIMESTAMP_LTZ:
        message.timestamp_info.tsUnit = types.MICROSECONDS
    elif sql.kind is SqlKind.ARRAY:
        message.arrayTypeInfo.elementType.CopyFrom(data_type(sql.inner[0]))
    elif sql.kind is SqlKind.STRUCT:
        for inner in sql.inner:
            message.structTypeInfo.fields.add(name=inner.name, type=data_type(inner))
    return message


class Tables:
    """Streams by table, and what happened to them."""

    def __init__(self, folder: str, refusals: list[tuple[str, int]]) -> None:
        self.connection: Connection = connect(base_path=folder)
        self.streams: dict[tuple[str, str], RealtimeStream] = {}
        self.lock = threading.Lock()
        self.refusals = [code for code, times in refusals for _ in range(times)]
        self.batches: list[dict[str, Any]] = []
        self.commits = 0

    def stream(self, ident: v2.TableIdentifier) -> RealtimeStream:
        """Return the stream into a table; opened with the first call."""
        key = (ident.schema_name, ident.table_name)
        if key not in self.streams:
            # Rows are committed when the client asks for it, or at the end.
            options = RealtimeOptionsBuilder().with_commit_interval(3_600_000).with_flush_interval(0).build()
            self.streams[key] = self.connection.get_realtime_stream(schema=key[0], table=key[1], options=options)
        return self.streams[key]

    def described(self, ident: v2.TableIdentifier) -> v2.CreateOrGetStreamResponse:
        """Return a table's columns and keys."""
        with self.lock:
            native = self.stream(ident).native
        table = self.connection.open_table(ident.table_name, ident.schema_name)
        fields = decode_types(table.client.load().config.properties.get("lakefmt.sql.types"), table.schema)
        answer = v2.CreateOrGetStreamResponse(table_ident=ident, already_exists=True, require_commit=native.is_keyed)
        answer.table_ident.instance_id = INSTANCE
        numbers = {field.name: n + 1 for n, field in enumerate(fields)}
        for field in fields:
            answer.data_schema.data_fields.add(name=field.name, type=data_type(field, numbers[field.name]))
        if native.is_keyed:
            answer.data_schema.primary_key_spec.field_ids.extend(numbers[name] for name in native.key_columns)
        return answer

    def mutate(self, request: v2.MutateRequest) -> v2.MutateResponse:
        """Take a batch of rows; they are durable when this returns success."""
        block = request.data_block
        answer = v2.MutateResponse(batch_id=request.batch_id, num_rows=block.num_rows)
        with self.lock:
            if self.refusals:
                answer.status.code = v2.Code.Value(self.refusals.pop(0))
                answer.status.error_message = "refused by the test"
            else:
                try:
                    stream = self.stream(request.table_ident)
                    self._apply(stream, block)
                    stream.flush()
                    answer.server_tokens[1] = "token"
                except (LakefmtError, pa.ArrowException, ValueError) as error:
                    answer.status.code = v2.FAILED
                    answer.status.error_message = str(error)
            code = v2.Code.Name(answer.status.code)
            self.batches.append({"id": request.batch_id, "rows": block.num_rows, "code": code})
        return answer

    def _apply(self, stream: RealtimeStream, block: v2.DataBlock) -> None:
        rows = pa.ipc.open_stream(block.arrow_payload).read_all()
        operators = list(block.row_op_type_list.op_types) or [block.block_op_type] * block.num_rows
        width = (rows.num_columns + 7) // 8
        bits = block.is_set_bitmaps_payload
        for number, (row, operator) in enumerate(zip(rows.to_pylist(), operators, strict=True)):
            mask = int.from_bytes(bits[number * width : (number + 1) * width], "little")
            given = {name: row[name] for n, name in enumerate(rows.column_names) if mask >> n & 1}
            stream.native.apply_rows(v2.OperationType.Name(operator), [given])

    def commit(self) -> None:
        """Commit what every stream has."""
        with self.lock:
            for stream in self.streams.values():
                stream.native.commit()
            self.commits += 1

    def close(self) -> None:
        """Commit and close every stream."""
        for stream in self.streams.values():
            stream.close()


class Worker(v2_grpc.IngestionWorkerServiceServicer):
    """The channel of rows."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def Mutate(self, request_iterator: Any, context: Any) -> Any:
        """Answer every batch."""
        for request in request_iterator:
            yield self.tables.mutate(request)


def control(tables: Tables, method: int, text: str, worker: int) -> Any:
    """Answer a control call."""
    if method == v1.CREATE_OR_GET_STREAM_V2:
        return tables.described(Parse(text, v2.CreateOrGetStreamRequest(), ignore_unknown_fields=True).table_ident)
    if method == v1.GET_ROUTE_WORKER_V2:
        answer = v2.GetRouteWorkersResponse()
        answer.tuple.add(host="127.0.0.1", port=worker)
        answer.tablet_id.append(1)
        return answer
    if method == v1.ASYNC_COMMIT_V2:
        tables.commit()
        return v2.CommitResponse(commit_id=tables.commits)
    if method == v1.CHECK_COMMIT_RESULT_V2:
        return v2.CheckCommitResultResponse(finished=True)
    raise ValueError(f"no method {method}")


def handler(tables: Tables, worker: int) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            if self.path == "/clickzetta-portal/user/loginSingle":
                answer: Any = {"code": 0, "data": {"token": "token", "userId": 1, "instanceId": INSTANCE}}
            elif self.path == "/igs/gatewayEndpoint":
                try:
                    said = control(tables, int(body["methodEnumValue"]), body["message"], worker)
                    answer = {"status": {"code": "SUCCESS"}, "message": MessageToJson(said)}
                except (LakefmtError, ValueError, KeyError) as error:
                    answer = {"status": {"code": "FAILED", "message": str(error)}, "message": ""}
            else:
                self.send_error(404)
                return
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--refuse", action="append", default=[], metavar="CODE=TIMES")
    given = parser.parse_args()
    refusals = [(code, int(times)) for code, times in (each.split("=") for each in given.refuse)]
    tables = Tables(given.folder, refusals)
    worker = grpc.server(futures.ThreadPoolExecutor(4))
    v2_grpc.add_IngestionWorkerServiceServicer_to_server(Worker(tables), worker)
    port = worker.add_insecure_port("127.0.0.1:0")
    worker.start()
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler(tables, port))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    print(json.dumps({"service": f"127.0.0.1:{http.server_address[1]}"}), flush=True)
    sys.stdin.read()
    http.shutdown()
    worker.stop(5).wait()
    tables.close()
    print(json.dumps({"batches": tables.batches, "commits": tables.commits}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
