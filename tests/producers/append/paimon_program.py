"""One program for pypaimon and for lakefmt.builders: ``python paimon_program.py MODULE FOLDER``; prints JSON."""

from __future__ import annotations

import importlib
import json
import sys

import pyarrow as pa

SCHEMA = pa.schema([("p", pa.string()), ("product", pa.string()), ("n", pa.int64())])


def rows(*given: tuple[str, str, int]) -> pa.Table:
    """Return rows of the program."""
    return pa.table(list(map(list, zip(*given, strict=True))) if given else [[], [], []], schema=SCHEMA)


def write(table: object, data: pa.Table | None, overwrite: object = None) -> None:
    """Commit rows with the builders; None: a commit without rows."""
    builder = table.new_batch_write_builder()  # type: ignore[attr-defined]
    if overwrite is not None:
        builder = builder.overwrite(overwrite)
    writer, commit = builder.new_write(), builder.new_commit()
    if data is not None:
        writer.write_arrow(data)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def read(table: object, columns: list[str] | None = None, minimum: int | None = None) -> list[list[object]]:
    """Return the rows of a table, sorted."""
    builder = table.new_read_builder()  # type: ignore[attr-defined]
    if minimum is not None:
        builder = builder.with_filter(builder.new_predicate_builder().greater_or_equal("n", minimum))
    if columns is not None:
        builder = builder.with_projection(columns)
    splits = builder.new_scan().plan().splits()
    got = builder.new_read().to_arrow(splits)
    return sorted(map(list, zip(*(column.to_pylist() for column in got.columns), strict=True)), key=str)


def shards(table: object) -> list[list[object]]:
    """Return the rows that three shards read together."""
    got: list[list[object]] = []
    for number in range(3):
        builder = table.new_read_builder()  # type: ignore[attr-defined]
        splits = builder.new_scan().with_shard(number, 3).plan().splits()
        part = builder.new_read().to_arrow(splits)
        got += map(list, zip(*(column.to_pylist() for column in part.columns), strict=True))
    return sorted(got, key=str)


def per_product(table: object) -> dict[str, list[int]]:
    """Return the numbers of every product in the order in which the splits of its bucket give them."""
    builder = table.new_read_builder()  # type: ignore[attr-defined]
    got: dict[str, list[int]] = {}
    for split in builder.new_scan().plan().splits():
        part = builder.new_read().to_arrow([split])
        for product, n in zip(part["product"].to_pylist(), part["n"].to_pylist(), strict=True):
            got.setdefault(product, []).append(n)
    return got


def run(module: str, folder: str) -> dict[str, object]:
    """Run the program and return what it saw."""
    library = importlib.import_module(module)
    catalog = library.CatalogFactory.create({"warehouse": folder})
    catalog.create_database("db", True)

    def make(name: str, partitions: list[str] | None = None, **options: str) -> object:
        schema = library.Schema.from_pyarrow_schema(
            SCHEMA, partitions, options={k.replace("_", "-"): v for k, v in options.items()}
        )
        catalog.create_table(f"db.{name}", schema, False)
        return catalog.get_table(f"db.{name}")

    seen: dict[str, object] = {}
    plain = make("plain", bucket="-1")
    write(plain, rows(("x", "a", 1), ("y", "b", 2)))
    write(plain, rows(("x", "c", 3)))
    seen["plain"] = read(plain)
    seen["projected"] = read(plain, ["n"])
    seen["filtered"] = read(plain, None, 2)
    seen["sharded"] = shards(plain)

    queue = make("queue", bucket="8", bucket_key="product")
    for step in range(9):
        write(queue, rows(*[("x", f"product-{k}", step * 10 + k) for k in range(5)]))
    seen["order"] = per_product(queue)

    matrix: dict[str, object] = {}
    before = rows(("x", "a", 1), ("y", "b", 2), ("z", "c", 3))
    for name, partitions, data, overwrite in (
        ("dynamic", ["p"], rows(("x", "n", 9)), {}),
        ("dynamic-empty", ["p"], None, {}),
        ("named", ["p"], rows(("x", "n", 9)), {"p": "x"}),
        ("unpartitioned", None, rows(("x", "n", 9)), {}),
    ):
        table = make("o" + name.replace("-", ""), partitions, bucket="-1")
        write(table, before)
        write(table, data, overwrite)
        matrix[name] = read(table)
    seen["overwrite"] = matrix

    tagged = make("tagged", bucket="-1")
    write(tagged, rows(("x", "a", 1)))
    tagged.create_tag("first")  # type: ignore[attr-defined]
    write(tagged, rows(("x", "a", 2)))
    tagged.rollback_to("first")  # type: ignore[attr-defined]
    seen["rolled back"] = read(tagged)
    return seen


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2])))
