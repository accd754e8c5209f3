"""Rows of files, topics, tables and databases into tables, once or again and again (docs/ingest.md).

:func:`run` does what a job says; the checkpoint of its source lies in the commits, in Hudi Streamer's own keys.
"""

from lakefmt._core.ingest.api import (
    Checkpoint,
    HearsOfCommits,
    KnowsTableSchema,
    Round,
    Source,
    SourceBatch,
    StoresInstants,
)
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.run import Ingester, IngestPlan, IngestProgress, JobProgress, load_config
from lakefmt._core.ingest.run import plan_jobs as plan
from lakefmt._core.ingest.run import run_jobs as run

__all__ = [
    "Checkpoint",
    "HearsOfCommits",
    "IngestPlan",
    "IngestProgress",
    "Ingester",
    "JobProgress",
    "KnowsTableSchema",
    "Round",
    "Source",
    "SourceBatch",
    "StoresInstants",
    "TableJob",
    "load_config",
    "plan",
    "run",
]
