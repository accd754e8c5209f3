"""Random verbs on a store and on a dictionary end in the same objects, whatever the order."""

from __future__ import annotations

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lakefmt._core.storage import LocalStore, MemoryStore, PutOutcome
from lakefmt.errors import ObjectNotFound
from lakefmt.testing.stores import FaultMode, FaultStore, fail_at
from tests.example_counts import examples

# No name is the directory of another: a disk cannot have both, an object store can.
names = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "dd/a", "d a/ü", "x.1/y", ".h/z"])
prefixes = st.sampled_from(["", "d", "d/e", "dd", "d a", "x.1", ".h", "missing"])
bodies = st.binary(max_size=20)


def inside(name, prefix, recursive=True):
    start = f"{prefix}/" if prefix else ""
    return name.startswith(start) and (recursive or "/" not in name[len(start) :])


class StoreModel(RuleBasedStateMachine):
    """A store beside a dictionary."""

    def make(self):
        return MemoryStore()

    def __init__(self):
        super().__init__()
        self.store = self.make()
        self.model = {}

    @rule(name=names, body=bodies, durable=st.booleans())
    def put(self, name, body, durable):
        self.store.put(name, body, durable=durable)
        self.model[name] = body

    @rule(name=names, body=bodies)
    def put_if_absent(self, name, body):
        outcome = self.store.put_if_absent(name, body)
        assert outcome is (PutOutcome.REFUSED if name in self.model else PutOutcome.DONE)
        self.model.setdefault(name, body)

    @rule(name=names, body=bodies, finish=st.booleans())
    def sink(self, name, body, finish):
        with self.store.create(name) as sink:
            sink.file.write(body)
            assert sink.size == len(body)
            if finish:
                assert sink.put_if_absent() is (PutOutcome.REFUSED if name in self.model else PutOutcome.DONE)
                self.model.setdefault(name, body)

    @rule(gone=st.lists(names, max_size=4))
    def delete(self, gone):
        self.store.delete(gone)
        self.model = {name: body for name, body in self.model.items() if name not in gone}

    @rule(prefix=prefixes)
    def delete_tree(self, prefix):
        self.store.delete_tree(prefix)
        self.model = {name: body for name, body in self.model.items() if not inside(name, prefix)}

    @rule(prefix=prefixes.filter(bool))
    def make_directories(self, prefix):
        self.store.make_directories([prefix])

    @rule(name=names, body=bodies, mode=st.sampled_from([FaultMode.BEFORE, FaultMode.TORN]))
    def a_put_that_fails_half_way(self, name, body, mode):
        faulty = FaultStore(self.store, fail_at(1, mode, crash=False))
        with pytest.raises(Exception, match="simulated"):
            faulty.put(name, body)

    @rule()
    def sweep(self):
        self.store.remove_leftovers(1e12)

    @rule(name=names)
    def read(self, name):
        if name in self.model:
            assert self.store.read(name) == self.model[name]
            assert self.store.info(name).size == len(self.model[name])
        else:
            assert self.store.info(name) is None
            with pytest.raises(ObjectNotFound):
                self.store.read(name)

    @rule(prefix=prefixes, recursive=st.booleans())
    def list_some(self, prefix, recursive):
        found = {item.name: item.size for item in self.store.list(prefix, recursive=recursive)}
        expected = {name: len(body) for name, body in self.model.items() if inside(name, prefix, recursive)}
        assert found == expected

    @rule(prefix=prefixes)
    def list_directories(self, prefix):
        start = f"{prefix}/" if prefix else ""
        below = {
            start + name[len(start) :].split("/")[0]
            for name in self.model
            if inside(name, prefix) and "/" in name[len(start) :]
        }
        found = self.store.list_directories(prefix)
        assert len(found) == len(set(found))
        # A disk keeps directories that have become empty.
        assert below <= set(found) if self.store.capabilities.directories else below == set(found)

    @invariant()
    def nothing_is_lost_and_nothing_appears(self):
        listed = [item.name for item in self.store.list()]
        assert sorted(listed) == sorted(self.model)


class LocalStoreModel(StoreModel):
    """The same on a disk."""

    def make(self):
        self.directory = tempfile.mkdtemp()
        return LocalStore(self.directory)

    def teardown(self):
        shutil.rmtree(self.directory, ignore_errors=True)


TestMemoryStoreModel = StoreModel.TestCase
TestMemoryStoreModel.settings = settings(max_examples=examples(40), stateful_step_count=30)
TestLocalStoreModel = LocalStoreModel.TestCase
TestLocalStoreModel.settings = settings(max_examples=examples(30), stateful_step_count=30)
