"""Key filters of a write's small new files, made together before the files are written. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefmt.filegroups.base_writer import new_filter
from lakefmt.formats.bloom import BloomFilter, add_together
from lakefmt.write.assign import Assigned
from lakefmt.write.values import WriteContext

__all__ = ["filters_of_small"]

#: Filters of files with more keys are made file by file: there the calls cost less than the hashes.
_FEW_KEYS = 1000
#: Keys whose bit positions are worked out together: thirty numbers each.
_MOST_KEYS = 1 << 17


def filters_of_small(
    context: WriteContext, keys: pa.StringArray | None, assigned: Sequence[Assigned]
) -> dict[int, BloomFilter]:
    """Return the key filters of new files of few keys, by the number of their assignment."""
    new = [
        number
        for number, one in enumerate(assigned)
        if one.assignment.base is None and one.assignment.log is None and 0 < len(one.rows) <= _FEW_KEYS
    ]
    settings = context.settings
    wanted = context.config.populate_meta_fields and settings.flag("hoodie.parquet.bloom.filter.enabled")
    if keys is None or not wanted or len(new) < 2 or sum(len(assigned[number].rows) for number in new) > _MOST_KEYS:
        return {}
    theirs = [keys.take(pa.array(assigned[number].rows)) for number in new]
    blooms = [new_filter(settings, len(mine)) for mine in theirs]
    add_together(blooms, theirs)
    return dict(zip(new, blooms, strict=True))
