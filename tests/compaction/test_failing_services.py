"""A service that fails after a commit is a warning, whatever the exception: who repeats a complete write stores its rows twice."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
import lakefmt._core.compaction.archive as archive
import lakefmt._core.compaction.cluster_run as cluster
import lakefmt._core.compaction.compact_run as compact
import lakefmt._core.compaction.log_compact as log_compact
import lakefmt._core.compaction.scheduler as scheduler
from lakefmt.errors import LakefmtError

NUMBERS = itertools.count()
EXCEPTIONS = (KeyError("address.zip"), OSError(28, "No space left on device"), MemoryError(), LakefmtError("refused"))
#: What runs or chooses a service, and how the warning names it.
SERVICES = (
    (scheduler, "is_clean_due", "clean"),
    (compact, "run_compaction", "compaction"),
    (log_compact, "run_log_compaction", "log compaction"),
    (cluster, "run_clustering", "clustering"),
    (cluster, "has_pending_clustering", "clustering"),
    (archive, "run_archive", "archive step"),
    (archive, "archive_limits", "archive step"),
    (scheduler, "_settings_of", "choice of services"),
)
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.compact.inline": True,
    "hoodie.log.compaction.inline": True,
    "hoodie.clustering.inline": True,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
}


def rows(v: int) -> pa.Table:
    return pa.table({"id": ["a"], "v": [v]})


def made(**options: object) -> lakefmt.Table:
    table = lakefmt.create_table(
        f"memory://failing-services-{next(NUMBERS)}",
        schema=rows(0).schema,
        record_key="id",
        table_type="mor",
        options={**OPTIONS, **options},
    )
    for v in range(4):
        table.upsert(rows(v), options={"lakefmt.write.only": True})
    return table


def failing(monkeypatch: pytest.MonkeyPatch, module: object, name: str, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr(module, name, fail)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name", "service"), SERVICES)
def test_a_commit_stands_whatever_a_service_raises(
    module: object, name: str, service: str, monkeypatch: pytest.MonkeyPatch
):
    for error in EXCEPTIONS:
        # A clustering is only asked for a plan that waits where it is not run.
        table = made(**({"hoodie.clustering.inline": False} if name == "has_pending_clustering" else {}))
        options = {"hoodie.clustering.schedule.inline": True} if name == "has_pending_clustering" else {}
        with monkeypatch.context() as patch:
            failing(patch, module, name, error)
            result = table.upsert(rows(9), options=options)
        assert result.instant is not None
        assert any(f"the {service} after the commit failed" in each for each in result.warnings), result.warnings
        assert table.read().column("v").to_pylist() == [9]


def test_an_interrupt_passes(monkeypatch: pytest.MonkeyPatch):
    table = made()
    failing(monkeypatch, scheduler, "is_clean_due", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        table.upsert(rows(9))
    assert table.read().column("v").to_pylist() == [9]
