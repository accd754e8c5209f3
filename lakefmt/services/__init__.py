"""Table services of many tables in one process of their own, beside the writers.

:func:`run` takes the tables and serves each by its own settings: plan, run, verify. :mod:`round` decides what is due and
runs one round of one table, :mod:`loop` goes round all of them, :mod:`status` is what others see. Two processes may serve
the same tables: a lease per table lets one at a time in.
"""

from lakefmt.services.loop import ServiceLoop, run
from lakefmt.services.status import ServicesStatus, ServiceStep, TableStatus

__all__ = ["ServiceLoop", "ServiceStep", "ServicesStatus", "TableStatus", "run"]
