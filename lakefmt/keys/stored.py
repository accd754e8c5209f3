"""Compare stored rows with the keys and the path that were stored of them (docs/format.md, Record keys). Pure.

The properties do not tell all that makes keys and paths: a writer may have been given more settings than it stored.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import LakefmtError
from lakefmt.keys.generate import build_partition_paths, build_record_keys
from lakefmt.keys.partition_path import DEFAULT_PARTITION
from lakefmt.keys.spec import KeySpec

__all__ = ["StoredRule", "compare_stored_rows"]

#: The partition of null values in tables of older releases.
_OLD_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class StoredRule:
    """What some stored rows tell of how their keys and their path were made.

    Attributes:
        consistent_timestamps: whether times in keys and paths are formatted; None: both forms give what is stored.
        difference: how the stored keys or path differ from what the rows' columns give; empty: they do not.
        path_fits: the columns give the path.
        may_have_moved: the difference is one of paths, and the path may be that of other values: a global index leaves a row in its
            file when its partition value is changed.
    """

    consistent_timestamps: bool | None = None
    difference: str = ""
    path_fits: bool = True
    may_have_moved: bool = False


def compare_stored_rows(spec: KeySpec, rows: pa.Table, keys: pa.Array | None, path: str) -> StoredRule:
    """Return what stored rows tell of how their keys and their path were made.

    A path that fits some of the rows is made by the rule: the others stayed when their partition value was changed, as with a
    global index that keeps partitions.

    Args:
        spec: how the properties say that they are made; it is supported, and the form of its keys is known.
        rows: the columns that make them, in the table's types.
        keys: the stored key of each row; None: the table stores none, or generates them.
        path: the partition that the rows are stored in.

    Example:
        >>> from lakefmt.keys import plan_key_spec
        >>> rows = pa.table({"id": [1], "day": ["2016-12-29"]})
        >>> spec = plan_key_spec("id", "day", hive_style=False, url_encode=False)
        >>> compare_stored_rows(spec, rows, pa.array(["1"]), "2016/12/29").difference
        "a row is stored in the partition '2016/12/29', and its columns (day) give '2016-12-29'"
    """
    forms = [spec.consistent_logical_timestamps]
    if spec.has_times(rows.schema):
        forms.append(not spec.consistent_logical_timestamps)
    differences = [_differences(replace(spec, consistent_logical_timestamps=form), rows, keys, path) for form in forms]
    fitting = [form for form, found in zip(forms, differences, strict=True) if not any(found[:2])]
    if not fitting:
        # The form in which less differs.
        of_keys, of_path, moved = min(differences, key=lambda each: sum(map(bool, each[:2])))
        fits = not all(path_differs for _, path_differs, _ in differences)
        return StoredRule(difference=of_keys or of_path, path_fits=fits, may_have_moved=moved and not of_keys)
    path_fits = any(not found[2] for found in differences)
    return StoredRule(fitting[0] if len(fitting) < len(forms) else None, path_fits=path_fits)


def _differences(spec: KeySpec, rows: pa.Table, keys: pa.Array | None, path: str) -> tuple[str, str, bool]:
    """Return how the stored keys differ from what the rows give, and how the path does, empty: not at all; whether rows moved."""
    of_keys = of_path = ""
    moved = False
    try:
        of_keys = "" if keys is None else _key_difference(spec, rows, keys)
    except LakefmtError as error:
        of_keys = str(error)
    try:
        of_path, moved = _path_difference(spec, rows, path)
    except LakefmtError as error:
        of_path = str(error)
    return of_keys, of_path, moved


def _key_difference(spec: KeySpec, rows: pa.Table, keys: pa.Array) -> str:
    built = build_record_keys(spec, rows)
    others = pc.index(pc.fill_null(pc.equal(built, keys), False), False).as_py()
    if others < 0:
        return ""
    fields = ", ".join(spec.record_key_fields)
    return (
        f"a row has the record key {keys[others].as_py()!r:.200}, and its columns ({fields}) give "
        f"{built[others].as_py()!r:.200}"
    )


def _path_difference(spec: KeySpec, rows: pa.Table, path: str) -> tuple[str, bool]:
    """Return how the path differs from what all rows give, and whether it differs from what some of them give."""
    paths = build_partition_paths(spec, rows).dictionary
    # Older releases used another name for the default partition.
    same = pc.or_(pc.equal(paths, path), pc.equal(pc.replace_substring(paths, DEFAULT_PARTITION, _OLD_DEFAULT), path))
    others = pc.invert(same).true_count
    if others < len(paths):
        return "", others > 0
    fields = ", ".join(field.name for field in spec.partition_fields)
    first = paths[0].as_py()
    told = f"a row is stored in the partition {path!r:.200}, and its columns ({fields}) give {first!r:.200}"
    return told, _names(path) == _names(first)


def _names(path: str) -> list[str]:
    """Return what the parts of a path have in common with those of other values: their number, and names of columns."""
    return [part.partition("=")[0] if "=" in part else "" for part in path.split("/")]
