"""Table services: compaction, log compaction, clean and archive.

``service`` is the driver that compaction, log compaction and clean share; each of them has a pure planner (``plan``), the
encoding of its timeline files (``records``) and an executor whose steps may be repeated (``run``). ``scheduler`` runs
services after commits, ``background`` runs them in a thread, ``operations`` gives operations to other processes.
"""

from lakefmt.compaction.archive import ArchiveResult, plan_archive_of, run_archive
from lakefmt.compaction.background import BackgroundServices
from lakefmt.compaction.clean.plan import CleanPlan, CleanPolicy, CleanRules
from lakefmt.compaction.clean.run import CleanResult, plan_clean_of, run_clean
from lakefmt.compaction.compact.pending import abandon_compaction
from lakefmt.compaction.compact.plan import CompactionPlan, CompactionRules, CompactionStrategy, CompactionTrigger
from lakefmt.compaction.compact.run import CompactionResult, plan_compaction_of, run_compaction
from lakefmt.compaction.log_compact.run import (
    abandon_log_compaction,
    plan_log_compaction_of,
    run_log_compaction,
)
from lakefmt.compaction.scheduler import run_services
from lakefmt.compaction.verbs import CompactionVerbs

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
