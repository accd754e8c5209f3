"""Paimon's names of table options, and what stands for them here (docs/append.md, Options). Pure.

``OPTIONS`` makes the table in the documentation. A name that is not in it is refused with the nearest one that is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from lakefmt.config.table_config import CONSUMER_MODE, MIN_FILES, POLL_SECONDS, SORTS_PARTITIONS, STREAMS_OVERWRITES
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

__all__ = ["OPTIONS", "PaimonOption", "option_rows", "translate_options"]


@dataclass(frozen=True, slots=True)
class PaimonOption:
    """One of Paimon's table options.

    Attributes:
        default: Paimon's.
        becomes: the property that stands for it; empty: see `note`.
        form: how its value is translated: ``text``, ``number``, ``size`` (in bytes), ``flag``, ``seconds`` or ``hours``.
        refused: lakefmt has nothing for it, and a table would not do what it asks for.
        note: what it means here.
    """

    default: str
    becomes: str = ""
    form: str = "text"
    refused: bool = False
    note: str = ""


_STREAM: Final = "an argument of table.stream"
_DEFAULT: Final = "what table.stream does unless its argument says otherwise"
_CALL: Final = "an argument or option of a call"

OPTIONS: Final[Mapping[str, PaimonOption]] = {
    "bucket": PaimonOption("-1", note="-1: order='none'; a number: order='per_bucket' with as many buckets"),
    "bucket-key": PaimonOption("", "lakefmt.append.bucket.key"),
    "bucket-append-ordered": PaimonOption("true", note="false: order='none'"),
    "target-file-size": PaimonOption(
        "256 mb", "hoodie.parquet.max.file.size", "size", note="packed files are full at this size, too"
    ),
    "compaction.min.file-num": PaimonOption(
        "5", MIN_FILES, "number", note="by services, 10 without it; of a queue runs of 16 files after commits"
    ),
    "compaction.max.file-num": PaimonOption("", note="kept; 0 is off"),
    "compaction.small-file-ratio": PaimonOption("0.7", note="files below this part of `target-file-size` are packed"),
    "compaction.delete-ratio-threshold": PaimonOption("0.2", note="kept; an append table has no row deletes"),
    "compaction.file-num-limit": PaimonOption(
        "100000", note="kept; see hoodie.clustering.plan.strategy.max.num.groups"
    ),
    "full-compaction.delta-commits": PaimonOption("", "hoodie.clustering.inline.max.commits", "number"),
    "write-only": PaimonOption("false", "lakefmt.write.only", "flag"),
    "write-buffer-size": PaimonOption("256 mb", "lakefmt.write.window.bytes", "size"),
    "write-buffer-spillable": PaimonOption("true", note="kept; rows never wait for a commit in memory"),
    "write-buffer-for-append": PaimonOption("false", note="kept; files are written one after the other"),
    "write-max-writers-to-spill": PaimonOption("10", "lakefmt.write.open.files", "number"),
    "file.format": PaimonOption("parquet", note="parquet only"),
    "file.compression": PaimonOption("zstd", "hoodie.parquet.compression.codec"),
    "dynamic-partition-overwrite": PaimonOption("true", note="the argument mode= of table.overwrite"),
    "snapshot.time-retained": PaimonOption("1 h", "hoodie.clean.hours.retained", "hours"),
    "snapshot.num-retained.min": PaimonOption("10", "hoodie.clean.commits.retained", "number"),
    "snapshot.num-retained.max": PaimonOption(
        "unlimited", note="kept; a clean removes what is older than the retained"
    ),
    "snapshot.expire.limit": PaimonOption("50", note="kept; a clean removes what it may at once"),
    "continuous.discovery-interval": PaimonOption("10 s", POLL_SECONDS, "seconds", note=_DEFAULT),
    "scan.plan-sort-partition": PaimonOption("false", SORTS_PARTITIONS, "flag", note=_DEFAULT),
    "scan.bounded.watermark": PaimonOption("", note=_STREAM),
    "scan.mode": PaimonOption("default", note=_STREAM),
    "consumer-id": PaimonOption("", note=_STREAM),
    "consumer.mode": PaimonOption("exactly-once", CONSUMER_MODE, note=_DEFAULT),
    "consumer.expiration-time": PaimonOption("", note=_STREAM),
    "consumer.ignore-progress": PaimonOption("false", note=_STREAM),
    "scan.watermark.alignment.group": PaimonOption("", note=_STREAM),
    "scan.watermark.alignment.max-drift": PaimonOption("", note=_STREAM),
    "scan.watermark.alignment.update-interval": PaimonOption("1 s", note=_STREAM),
    "scan.watermark.emit.strategy": PaimonOption("on-event", note="kept; Flink's"),
    "scan.watermark.idle-timeout": PaimonOption("", note=_STREAM),
    "source.split.target-size": PaimonOption("128 mb", note="kept; a split is a file"),
    "source.split.open-file-cost": PaimonOption("4 mb", note="kept; a split is a file"),
    "streaming-read-overwrite": PaimonOption("false", STREAMS_OVERWRITES, "flag", note=_DEFAULT),
    "precommit-compact": PaimonOption(
        "false", note="kept; a commit writes one file for each bucket, or more if it is large"
    ),
    "tag.automatic-creation": PaimonOption("none", note="call table.tags.create_daily()"),
    "tag.creation-period": PaimonOption("daily", note="call table.tags.create_daily()"),
    "tag.creation-delay": PaimonOption("0", note="call table.tags.create_daily()"),
    "tag.num-retained-max": PaimonOption("none", note="the argument keep= of table.tags.create_daily()"),
    "partition.expiration-time": PaimonOption("", note="call table.expire_partitions(older_than=…)"),
    "partition.mark-done-action": PaimonOption("", refused=True, note="no done markers"),
    "clustering.columns": PaimonOption("", "hoodie.clustering.plan.strategy.sort.columns"),
    "clustering.strategy": PaimonOption("auto", "hoodie.layout.optimize.strategy", note="order, zorder, hilbert"),
    "clustering.incremental": PaimonOption("false", refused=True, note="levels of clustered files"),
    "clustering.history-partition.limit": PaimonOption("5", note="kept; see the clustering partition filters"),
    "sink.clustering.by-columns": PaimonOption("", note=_CALL + ": table.sort_on_write"),
    "sink.clustering.sample-factor": PaimonOption("100", note=_CALL),
    "sort-compaction.range-strategy": PaimonOption("SIZE", note="kept; see hoodie.layout.optimize.curve.build.method"),
    "sort-compaction.local-sample.magnification": PaimonOption("1000", note="kept"),
}

_OWN = ("hoodie.", "lakefmt.")
_SIZE = re.compile(r"(\d{1,15})\s*(b|bytes?|k|kb|kib|m|mb|mib|g|gb|gib)?", re.IGNORECASE)
_SPAN = re.compile(r"(\d{1,9})\s*(ms|s|sec|min|m|h|hours?|d|days?)", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LAYOUTS = {"order": "linear", "zorder": "z-order", "hilbert": "hilbert"}


def translate_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a table with Paimon's names replaced; Hudi's and lakefmt's own stay as they are.

    Raises:
        UnknownSetting: a name that neither has; the nearest is named.
        UnsupportedFeature: an option that lakefmt has nothing for.
        InvalidInputError: a value that the option does not take, or two options that contradict each other.

    Example:
        >>> translate_options({"bucket": "4", "bucket-key": "id", "target-file-size": "64 mb"})["hoodie.parquet.max.file.size"]
        '67108864'
        >>> translate_options({"bucket-kee": "id"})
        Traceback (most recent call last):
        lakefmt.errors.UnknownSetting: unknown table option 'bucket-kee': did you mean 'bucket-key'?
    """
    made: dict[str, str] = {}
    for name, value in properties.items():
        if name.startswith(_OWN):
            _take_property(made, name, value, name)
            continue
        option = OPTIONS.get(name)
        if option is None:
            near = get_close_matches(str(name), OPTIONS, 1)
            hint = f": did you mean {near[0]!r}?" if near else ": Paimon's options are listed in docs/append.md"
            raise UnknownSetting(f"unknown table option {name!r}{hint}")
        if option.refused:
            raise UnsupportedFeature(f"table option {name}: lakefmt has nothing for it ({option.note})")
        for key, text in _translated(name, option, str(value).strip(), properties).items():
            _take_property(made, key, text, name)
    return made


def _take_property(made: dict[str, str], key: str, text: str, name: str) -> None:
    if made.setdefault(key, text) != text:
        raise InvalidInputError(f"table option {name}={text} contradicts {key}={made[key]}")


def _translated(name: str, option: PaimonOption, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that stand for an option; the option itself is kept under lakefmt's prefix."""
    kept = {f"lakefmt.paimon.{name}": value}
    if name == "bucket":
        if value == "-1" or str(given.get("bucket-append-ordered", "true")).lower() == "false":
            return {**kept, "lakefmt.append.order": "none"}
        return {**kept, "lakefmt.append.order": "per_bucket", "lakefmt.append.buckets": _number(name, value)}
    if name == "file.format" and value.lower() != "parquet":
        raise UnsupportedFeature(f"table option file.format={value}: base files are Parquet")
    if name == "consumer.mode":
        modes = {mode.replace("_", "-"): mode for mode in ("exactly_once", "at_least_once")}
        if value not in modes:
            raise InvalidInputError(f"table option {name} takes exactly-once or at-least-once, not {value[:40]!r}")
        return {**kept, option.becomes: modes[value]}
    if name == "target-file-size":
        return {**kept, **_sizes(_bytes(name, value), str(given.get("compaction.small-file-ratio", "0.7")))}
    if name == "clustering.strategy":
        return {**kept, option.becomes: _LAYOUTS[value]} if value in _LAYOUTS else kept
    if not option.becomes:
        return kept
    if option.form == "size":
        value = str(_bytes(name, value))
    elif option.form == "number":
        value = _number(name, value)
    elif option.form == "flag":
        value = _flag(name, value)
    elif option.form == "seconds":
        value = f"{_span(name, value):g}"
    elif option.form == "hours":
        value = str(max(1, math.ceil(_span(name, value) / 3600)))
    return {**kept, option.becomes: value}


def _sizes(target: int, ratio: str) -> dict[str, str]:
    """Return the properties that say when a file is full, and which files are small."""
    try:
        part = float(ratio)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise InvalidInputError(
            f"table option compaction.small-file-ratio takes a number from 0 to 1, not {ratio[:40]!r}"
        )
    return {
        "hoodie.parquet.max.file.size": str(target),
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(target),
        "hoodie.clustering.plan.strategy.small.file.limit": str(max(1, int(part * target))),
    }


def _flag(name: str, value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise InvalidInputError(f"table option {name} takes true or false, not {value[:40]!r}")
    return value.lower()


def _number(name: str, value: str) -> str:
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 8 and int(value)):
        raise InvalidInputError(f"table option {name} takes a number from 1 to 9,999,999, not {value[:40]!r}")
    return str(int(value))


def _bytes(name: str, value: str) -> int:
    match = _SIZE.fullmatch(value)
    if match is None or not int(match[1]):
        raise InvalidInputError(f"table option {name} takes a size such as '128 mb', not {value[:40]!r}")
    return int(match[1]) * _UNITS[(match[2] or "b")[0].lower()]


def _span(name: str, value: str) -> float:
    """Return a span of time in seconds."""
    match = _SPAN.fullmatch(value)
    if match is None:
        raise InvalidInputError(f"table option {name} takes a time such as '1 h', not {value[:40]!r}")
    unit = match[2].lower()
    return int(match[1]) * (0.001 if unit == "ms" else _SECONDS[unit[0]])


def option_rows() -> list[str]:
    """Return the rows of the table in docs/append.md."""
    rows = ["| Paimon's option | its default | here |", "|---|---|---|"]
    for name, option in OPTIONS.items():
        here = f"`{option.becomes}`" if option.becomes else ""
        note = f"refused: {option.note}" if option.refused else option.note
        rows.append(f"| `{name}` | {option.default or '–'} | {'; '.join(filter(None, (here, note)))} |")
    return rows


def paimon_options_markdown() -> str:
    """Return the table of Paimon's options for the documentation.

    Example:
        >>> paimon_options_markdown().splitlines()[1]
        '|---|---|---|'
    """
    lines = ["| option | Paimon's default | here |", "|---|---|---|"]
    for name, option in OPTIONS.items():
        meaning = f"`{option.becomes}`" if option.becomes else ""
        remark = ("refused: " if option.refused else "") + option.note
        lines.append(f"| `{name}` | {option.default or '–'} | {'; '.join(filter(None, (meaning, remark)))} |")
    return "\n".join(lines)
