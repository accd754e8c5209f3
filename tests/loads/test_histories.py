"""Random histories over HTTP: clients load, their server is killed at any moment and starts again, others write beside it."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.client import StreamLoad
from lakefmt.errors import LoadFailed
from tests.example_counts import seeds_of_run
from tests.judges.hudi_rs import HudiRsJudge
from tests.loads.test_http import Process

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


class Loader:
    """A client that loads until it is told to end, and knows what was acknowledged."""

    def __init__(self, url: str, number: int, seed: int) -> None:
        self.url, self.number, self.chance = url, number, random.Random(seed * 10 + number)
        self.there: set[int] = set()
        self.perhaps: dict[str, set[int]] = {}
        self.ended = threading.Event()
        self.next = number * 1_000_000
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        count = 0
        while not self.ended.is_set():
            count += 1
            self.transaction(f"client-{self.number}-{count}")

    def transaction(self, label: str) -> None:
        load = StreamLoad(self.url, "db", "t", label=label, retries=0, connect_seconds=20)
        rows = set[int]()
        try:
            load.begin()
            for _ in range(self.chance.randrange(1, 4)):
                numbers = range(self.next, self.next + self.chance.randrange(1, 50))
                self.next = numbers.stop
                load.load("".join(f"{n},x\n" for n in numbers).encode(), column_separator=",")
                rows |= set(numbers)
            if self.chance.random() < 0.8:
                load.prepare()
            if self.chance.random() < 0.2:
                load.rollback()
                return
            load.commit()
            self.there |= rows
        except LoadFailed:
            # What became of it is asked when everything is over.
            self.perhaps[label] = rows
            self.ended.wait(0.05)

    def settle(self, url: str) -> None:
        """Ask what became of transactions without an answer, as a coordinator would; commit what is prepared."""
        for label, rows in self.perhaps.items():
            load = StreamLoad(url, "db", "t", label=label)
            if load.state() == "PREPARED":
                load.commit()
            if load.state() == "VISIBLE":
                self.there |= rows


@pytest.mark.slow
@pytest.mark.judge_rs
@pytest.mark.parametrize("seed", seeds_of_run(1, 20))
def test_acknowledged_rows_are_there_once(tmp_path: Path, seed: int, hudi_rs_judge: HudiRsJudge) -> None:
    path = tmp_path / "db" / "t"
    lakefmt.create_table(
        path, schema=SCHEMA, kind="append" if seed % 2 else "keyed", **({} if seed % 2 else {"record_key": "id"})
    )
    chance, foreign = random.Random(seed), set[int]()
    loaders: list[Loader] = []
    port = 0
    try:
        for life in range(4):
            with Process(str(tmp_path), port) as server:
                port = int(server.url.rpartition(":")[2])
                if not loaders:
                    loaders += [Loader(server.url, number, seed) for number in range(1, 4)]
                    for loader in loaders:
                        loader.thread.start()
                lives = threading.Event()
                lives.wait(0.3 + chance.random())
                number = -1 - life
                rows = pa.table({"id": [number], "v": ["other"]}, schema=SCHEMA)
                table = lakefmt.open_table(
                    path, options={"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
                )
                (table.append if seed % 2 else table.upsert)(rows)
                foreign.add(number)
                lives.wait(0.2 * chance.random())
    finally:
        for loader in loaders:
            loader.ended.set()
        for loader in loaders:
            loader.thread.join()
    with Process(str(tmp_path), port) as server:
        for loader in loaders:
            loader.settle(server.url)
    expected = sorted(foreign.union(*(loader.there for loader in loaders)))
    assert sorted(lakefmt.open_table(path).read()["id"].to_pylist()) == expected, f"seed {seed}"
    assert sorted(hudi_rs_judge.snapshot(path)["id"].to_pylist()) == expected, f"seed {seed}"
    assert sum(len(loader.there) for loader in loaders) > 0
    assert sum(len(loader.perhaps) for loader in loaders) > 0
