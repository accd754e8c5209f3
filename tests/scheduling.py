"""How a run hands out tests to its processes: xdist's groups, without a look at all that is done after each test."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class GroupScheduling(LoadGroupScheduling):
    """Forgets a group when its last test is done: with thousands of groups, counting them took as long as many a test."""

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Count a test as done, and hand out more."""
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][group].values()):
            del self.assigned_work[node][group]

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process that is gone, and return the test that it died of: no other process is given it, which would die, too."""
        workload = self.assigned_work.pop(node)
        open_tests = ((unit, test) for unit in workload.values() for test, is_done in unit.items() if not is_done)
        unit, test = next(open_tests, (None, None))
        if unit is None or test is None:
            return None
        unit[test] = True
        self.workqueue.update({group: unit for group, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return test
