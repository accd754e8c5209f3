"""Table services of many tables in one process of their own, beside the writers.

:func:`run` takes the tables and serves each by its own settings: plan, run, verify. What is due is decided in
:mod:`needs` and :mod:`packing`, a round of one table is :mod:`round`, and :mod:`loop` goes round all of them. Two
processes may serve the same tables: a lease per table (:mod:`lease`) lets one at a time in.
"""

from lakefmt.services.loop import ServiceLoop, run
from lakefmt.services.status import ServicesStatus, ServiceStep, TableStatus

__all__ = ["ServiceLoop", "ServiceStep", "ServicesStatus", "TableStatus", "run"]
