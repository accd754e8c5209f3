"""From facts to findings about keys: footers, filters, ranges, meta columns, record keys, partitions, duplicates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain

from lakefmt.filegroups.damage import Finding, Kind, RewriteFile
from lakefmt.filegroups.model import BaseFile
from lakefmt.read.check_facts import TableFacts
from lakefmt.read.check_keys import DuplicateKeys, KeyFacts

__all__ = ["find_duplicate_keys", "find_key_damage"]


def find_key_damage(facts: TableFacts) -> Iterator[Finding]:
    """Yield what is wrong with footers, filters, ranges, meta columns and keys."""
    merged = {(log.partition, log.file_id) for log in facts.logs if log.path in facts.latest_logs}
    for finding in chain(_footers(facts), _keys(facts), find_duplicate_keys(facts, allowed=False)):
        yield _saying_what_is_merged(finding, merged) if merged else finding


def _saying_what_is_merged(finding: Finding, merged: Collection[tuple[str, str]]) -> Finding:
    """Return the finding; of a base file with logs its steps say that a compaction does it."""
    steps = [
        replace(step, why=f"{step.why}; by compaction, with its logs")
        if isinstance(step, RewriteFile) and (step.source.partition, step.source.file_id) in merged
        else step
        for step in finding.steps
    ]
    return replace(finding, steps=tuple(steps))


def _footers(facts: TableFacts) -> Iterator[Finding]:
    for file in _readable(facts):
        footer = facts.footers[file.path]
        if not footer.has_meta or not facts.config.populate_meta_fields:
            continue
        absent = [] if (footer.low is not None and footer.high is not None) or not footer.rows else ["key range"]
        absent += ["key filter"] if facts.wants_filters and not footer.has_filter and not footer.filter_problem else []
        if absent:
            what, consequence = (
                f"the footer has no {' and no '.join(absent)}",
                "look-ups read its keys, or fail in Spark",
            )
            yield _rewritten(Kind.FOOTERS, file, what, consequence)
        if footer.filter_problem:
            yield _rewritten(Kind.BLOOM_FILTER, file, footer.filter_problem, "look-ups through it fail")


def _readable(facts: TableFacts) -> Iterator[BaseFile]:
    for piece in facts.latest:
        if piece.base is None or piece.base.path in facts.key_problems:
            continue
        if piece.base.path in facts.footers and not facts.footers[piece.base.path].problem:
            yield piece.base


def _rewritten(
    kind: Kind, file: BaseFile, what: str, consequence: str, *, rekey: bool = False, move: bool = False
) -> Finding:
    step = RewriteFile(file, file.path, what, rekey=rekey, move=move)
    return Finding(kind, file.path, what, consequence, "write its rows as a new slice", (step,))


def _keys(facts: TableFacts) -> Iterator[Finding]:
    # When no row at all is as the properties say, it is they that are wrong: nothing may be made anew by them.
    rows = sum(keys.rows for keys in facts.keys.values())
    all_keys = rows > 1 and sum(keys.wrong_keys.count for keys in facts.keys.values()) == rows
    all_places = rows > 1 and sum(keys.wrong_partition.count for keys in facts.keys.values()) == rows
    in_doubt = {kind for kind, is_all in ((Kind.RECORD_KEYS, all_keys), (Kind.WRONG_PARTITION, all_places)) if is_all}
    for file in _readable(facts):
        if file.path in facts.keys:
            yield from _keys_of(file, facts.keys[file.path], in_doubt)


def _keys_of(file: BaseFile, keys: KeyFacts, in_doubt: Collection[Kind]) -> Iterator[Finding]:
    twice = "an upsert does not find these keys and stores them a second time"
    if keys.denied:
        what = f"its filter denies {keys.denied.count:,} keys that it holds, such as {keys.denied.example!r:.80}"
        yield _rewritten(Kind.BLOOM_FILTER, file, what, twice)
    if keys.outside:
        what = f"{keys.outside.count:,} keys are outside the range in its footer, such as {keys.outside.example!r:.80}"
        yield _rewritten(Kind.KEY_RANGE, file, what, twice)
    for tally, what in (
        (keys.misnamed, "name another file"),
        (keys.misplaced, "name another partition"),
        (keys.too_new, "name a commit after the file's own"),
    ):
        if tally:
            said = f"{tally.count:,} rows {what}, such as {tally.example!r:.120}"
            yield _rewritten(Kind.META_COLUMNS, file, said, "engines that trust the meta columns go astray")
    for kind, tally, what, consequence in (
        (Kind.RECORD_KEYS, keys.wrong_keys, "have another record key than their columns make", twice),
        (Kind.WRONG_PARTITION, keys.wrong_partition, "belong into another partition", "filters miss these rows"),
    ):
        if not tally:
            continue
        said = f"{tally.count:,} rows {what}, such as {tally.example!r:.120}"
        if kind in in_doubt:
            remedy = "correct the key and partition settings of the properties: they fit no row of the table"
            yield Finding(kind, file.path, said, consequence, remedy)
        elif tally.is_mendable:
            yield _rewritten(
                kind, file, said, consequence, rekey=kind is Kind.RECORD_KEYS, move=kind is Kind.WRONG_PARTITION
            )
        else:
            yield Finding(kind, file.path, said, consequence, "correct the rows: delete and insert them anew")


def find_duplicate_keys(facts: TableFacts, *, allowed: bool) -> Iterator[Finding]:
    """Yield keys that come more than once: those that no verb explains, or those that plain inserts do."""
    for found in facts.duplicates:
        if found.allowed is allowed:
            seen = [facts.keys[file.path] for file in found.files]
            yield _duplicate(found, in_doubt=any(keys.wrong_keys or keys.wrong_partition for keys in seen))


def _duplicate(found: DuplicateKeys, *, in_doubt: bool) -> Finding:
    """Return the finding; rows with a wrong key or place may not be what they repeat, so these are mended first."""
    count = sum(len(rows) for rows in found.drop.values())
    loses = "" if found.equal else f"{count:,} rows that lose against another one with their key"
    files = {file.path: file for file in found.files}
    steps = tuple(
        RewriteFile(files[path], path, f"{len(rows):,} rows repeat a key", drop=rows, loses=loses)
        for path, rows in sorted(found.drop.items())
    )
    origin = "plain inserts may store a key twice" if found.allowed else "no verb stores a key twice here"
    return Finding(
        Kind.DUPLICATE_KEYS,
        found.scope,
        f"{found.keys:,} keys come more than once, such as {found.example!r:.80}, in {len(found.files)} files: {origin}",
        "readers see more than one row of a key",
        "mend keys and partitions, then check again" if in_doubt else "keep the row that the table's rule prefers",
        () if found.allowed or in_doubt else steps,
    )
