"""Services that rewrite or remove file slices: each a pure planner and a runner whose steps may be repeated."""

from lakefmt.compaction.archive_run import ArchiveResult, plan_archive_of, run_archive
from lakefmt.compaction.automatic import run_services
from lakefmt.compaction.clean_plan import CleanPlan, CleanPolicy, CleanRules
from lakefmt.compaction.clean_run import CleanResult, plan_clean_of, run_clean

__all__ = [
    "ArchiveResult",
    "CleanPlan",
    "CleanPolicy",
    "CleanResult",
    "CleanRules",
    "plan_archive_of",
    "plan_clean_of",
    "run_archive",
    "run_clean",
    "run_services",
]
