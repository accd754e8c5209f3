"""Ask Spark's workers, once for each session, whether they run this release of lakefmt (effects)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefmt import __version__
from lakefmt._core.arguments import Raised, run_foreign
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_workers", "why_workers_fail"]

#: Where a session remembers the release of its workers. A setting, since every batch of a stream comes with a new object for
#: the one session that its query has.
_ASKED: Final = "lakefmt.spark.workers.release"
_SHIP: Final = (
    "install it in the workers' environment, or send it along: spark.submit.pyFiles, spark.archives, or addArtifacts"
)


def check_workers(spark: SparkSession) -> None:
    """Run one task of one row that says which release the workers have.

    Raises:
        UnsupportedFeature: they have none, or another one.
    """
    if spark.conf.get(_ASKED, "") == __version__:
        return
    versions = spark.range(0, 1, 1, 1).mapInArrow(_tell_version, "version string")
    there = run_foreign(lambda: str(versions.collect()[0]["version"]))
    if isinstance(there, Raised) and "No module named 'lakefmt" not in str(there.error):
        raise there.error
    why = why_workers_fail(__version__, "" if isinstance(there, Raised) else there)
    if why:
        raise UnsupportedFeature(why)
    spark.conf.set(_ASKED, __version__)


def why_workers_fail(here: str, there: str) -> str:
    """Return why workers cannot read and write for this process; empty: they can. Pure.

    Args:
        here: the release of this process.
        there: the release of the workers; empty: they have none.

    Example:
        >>> why_workers_fail("0.1.0", "0.1.0"), why_workers_fail("0.1.0", "0.2.0")[:50]
        ('', "Spark's workers run lakefmt 0.2.0, this process 0.")
    """
    if not there:
        return f"Spark's workers have no lakefmt: {_SHIP}"
    return "" if here == there else f"Spark's workers run lakefmt {there}, this process {here}: {_SHIP}"


def _tell_version(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    from lakefmt import __version__ as release

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"version": pa.array([release] * rows, pa.string())})
