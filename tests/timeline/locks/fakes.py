"""Lock services on virtual time: what ZooKeeper, DynamoDB and a Hive metastore promise, and no more."""

from __future__ import annotations

import itertools

from lakefmt._core.timeline.locks.services import ACQUIRED, WAITING, LockItem
from lakefmt.errors import StorageError


class FakeZooKeeper:
    """Nodes with the process and moment of their session; a session that was silent for too long takes them along."""

    def __init__(self, session_seconds):
        self.session_seconds = session_seconds
        self.nodes = {}
        self.numbers = itertools.count()

    def living(self):
        for name, session in [*self.nodes.items()]:
            if session.is_over():
                del self.nodes[name]
        return self.nodes


class FakeZooKeeperSession:
    def __init__(self, server, process):
        self.server, self.process, self.closed = server, process, False
        self.ended = False
        self.begun = process.request("connect", process.monotonic)

    def is_over(self):
        self.ended = self.ended or self.process.was_silent(self.begun, self.server.session_seconds)
        return self.ended

    def ask(self, kind, run):
        def act():
            self.server.living()
            return None if self.is_over() else (run(),)

        answer = self.process.request(kind, act)
        if answer is None:
            raise StorageError("the session has expired", transient=True)
        return answer[0]

    def create(self, path, prefix):
        def act():
            name = f"{prefix}{next(self.server.numbers):010}"
            self.server.nodes[name] = self
            return name

        return self.ask("create", act)

    def children(self, path):
        return self.ask("children", lambda: [*self.server.nodes])

    def is_ours(self, path, name):
        return self.ask("exists", lambda: self.server.nodes.get(name) is self)

    def delete(self, path, name):
        self.ask("delete", lambda: self.server.nodes.pop(name, None))

    def close(self):
        # Best effort, as kazoo does it: a session that cannot say goodbye times out.
        if not self.process.dead:
            self.ended = True


class FakeDynamo:
    """One item; a conditional request is one step."""

    what = "a pretended item"

    def __init__(self, cell, process):
        self.cell, self.process = cell, process

    def get(self):
        return self.process.request("get", lambda: (self.cell.get("item"),))[0]

    def put(self, item: LockItem, seen):
        return self.process.request("put", lambda: (self._swap(seen, item),))[0]

    def delete(self, seen):
        return self.process.request("delete", lambda: (self._swap(seen, None),))[0]

    def _swap(self, seen, item):
        found = self.cell.get("item")
        if (None if found is None else found.version) != seen:
            return False
        self.cell["item"] = item
        return True


class FakeMetastore:
    """A queue of locks; one that was not heard of for `timeout` seconds is taken back."""

    def __init__(self, timeout):
        self.timeout = timeout
        self.locks = {}
        self.numbers = itertools.count(1)

    def state(self, number, now):
        for other, heard in [*self.locks.items()]:
            if now - heard > self.timeout:
                del self.locks[other]
        if number not in self.locks:
            return None
        return ACQUIRED if min(self.locks) == number else WAITING


class FakeHiveSession:
    def __init__(self, server, process):
        self.server, self.process = server, process

    def lock(self):
        def act():
            number = next(self.server.numbers)
            self.server.locks[number] = self.process.monotonic()
            return number, self.server.state(number, self.process.monotonic())

        return self.process.request("lock", act)

    def check(self, number):
        def act():
            state = self.server.state(number, self.process.monotonic())
            if state is not None:
                self.server.locks[number] = self.process.monotonic()
            return (state,)

        return self.process.request("check_lock", act)[0]

    def heartbeat(self, number):
        return self.check(number) is not None

    def unlock(self, number):
        self.process.request("unlock", lambda: (self.server.locks.pop(number, None),))

    def close(self):
        pass
