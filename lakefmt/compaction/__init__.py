"""Services that rewrite or remove file slices: each a pure planner and a runner whose steps may be repeated."""

from lakefmt.compaction.archive_run import ArchiveResult, plan_archive_of, run_archive
from lakefmt.compaction.automatic import run_services
from lakefmt.compaction.background import BackgroundServices
from lakefmt.compaction.clean_plan import CleanPlan, CleanPolicy, CleanRules
from lakefmt.compaction.clean_run import CleanResult, plan_clean_of, run_clean
from lakefmt.compaction.compact_pending import abandon_compaction
from lakefmt.compaction.compact_plan import CompactionPlan, CompactionRules, CompactionStrategy, CompactionTrigger
from lakefmt.compaction.compact_run import CompactionResult, plan_compaction_of, run_compaction
from lakefmt.compaction.compact_verbs import CompactionVerbs
from lakefmt.compaction.log_compact_run import (
    abandon_log_compaction,
    plan_log_compaction_of,
    run_log_compaction,
)

__all__ = [
    "ArchiveResult",
    "BackgroundServices",
    "CleanPlan",
    "CleanPolicy",
    "CleanResult",
    "CleanRules",
    "CompactionPlan",
    "CompactionResult",
    "CompactionRules",
    "CompactionStrategy",
    "CompactionTrigger",
    "CompactionVerbs",
    "abandon_compaction",
    "abandon_log_compaction",
    "plan_archive_of",
    "plan_clean_of",
    "plan_compaction_of",
    "plan_log_compaction_of",
    "run_archive",
    "run_clean",
    "run_compaction",
    "run_log_compaction",
    "run_services",
]
