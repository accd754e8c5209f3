"""Column names that not every engine stores are refused with a name that they do, and renamed on request."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.cli.root import main
from lakefmt._core.schema.types import is_safe, name_mapping, safe_name
from lakefmt.errors import InvalidInputError, SchemaMismatch

_NUMBERS = itertools.count()
NAMES = ("größe", "naïve", "客户", "Order ID", "Amount (EUR)", "a.b", "a-b", "2024", "order#", "")


def place() -> str:
    return f"memory://column-names/{next(_NUMBERS)}"


@given(st.lists(st.text(max_size=6), unique=True, max_size=8))
def test_law_new_names_are_safe_and_differ(names: list[str]) -> None:
    mapping = name_mapping(names, True)
    new = [mapping.get(name, name) for name in names]
    assert all(map(is_safe, new))
    assert [name for name in names if is_safe(name)] == [
        n for n, m in zip(names, new, strict=True) if is_safe(n) and n == m
    ]
    changed = [mapping[name].lower() for name in mapping]
    assert len(set(changed)) == len(changed)
    assert name_mapping(new, True) == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_refusal_names_the_way_out(name: str) -> None:
    rows = pa.table({"id": ["a"], name: [1]})
    with pytest.raises(SchemaMismatch) as raised:
        lakefmt.write_table(place(), rows, record_key="id")
    assert f"Name it {safe_name(name)!r}: write_table(…, rename=True)" in str(raised.value)
    url = place()
    for _ in range(2):
        lakefmt.write_table(url, rows, record_key="id", mode="upsert", rename=True)
    assert lakefmt.open_table(url).read().to_pylist() == [{"id": "a", safe_name(name): 1}]


def test_keys_partitions_and_ordering_may_use_the_old_names() -> None:
    rows = pa.table({"Order ID": ["a", "b"], "städte": ["sf", "oslo"], "t s": [1, 2]})
    url = place()
    lakefmt.write_table(
        url, rows, record_key=["Order ID"], partition_by="städte", ordering="t s", rename=True, operation="bulk_insert"
    )
    table = lakefmt.open_table(url)
    assert (table.properties.record_key_fields, table.properties.ordering_fields) == (("Order_ID",), ("t_s",))
    assert sorted(table.partitions()) == ["stadte=oslo", "stadte=sf"]
    lakefmt.write_table(
        url, iter(rows.to_batches()), mode="upsert", rename={"Order ID": "Order_ID", "städte": "stadte", "t s": "t_s"}
    )
    assert table.read().num_rows == 2


def test_a_name_that_is_not_there_or_taken_is_refused() -> None:
    rows = pa.table({"id": ["a"], "b": [1]})
    for rename, message in (({"c": "d"}, "there is no column 'c'"), ({"b": "id"}, "would be called 'id'")):
        with pytest.raises(InvalidInputError, match=message):
            lakefmt.write_table(place(), rows, record_key="id", rename=rename)


def test_the_shell_renames(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("Order ID,größe\n1,5\n2,6\n", "utf-8")
    arguments = ["write", str(tmp_path / "t"), str(tmp_path / "orders.csv"), "--rename"]
    made = CliRunner().invoke(main, [*arguments, "--create", "-k", "Order ID"])
    assert made.exit_code == 0, made.output
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0, again.output
    assert sorted(lakefmt.open_table(tmp_path / "t").read()["grosse"].to_pylist()) == [5, 6]
    refused = CliRunner().invoke(
        main, ["write", str(tmp_path / "u"), str(tmp_path / "orders.csv"), "--create", "-k", "Order ID"]
    )
    assert refused.exit_code != 0
    assert "--rename" in refused.output
