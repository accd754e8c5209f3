"""Measured costs: the seconds of each unit of an amount, and what they say a choice costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from lakefmt.advice.amounts import OPERATIONS, Amounts, predict_amounts
from lakefmt.advice.choices import TableChoice
from lakefmt.advice.profile import TableProfile
from lakefmt.arguments import number_argument
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError

__all__ = ["CostCurves", "ExpectedCost", "expected_cost", "parse_curves"]

_FORMAT: Final = 1
_MOST_SECONDS: Final = 1e6
_MOST_UNITS: Final = 200


@dataclass(frozen=True)
class CostCurves:
    """What each unit of an amount costs in seconds, by operation, on the machine that measured.

    Attributes:
        seconds: operation → name of an amount → seconds per unit.
        machine: which machine measured.
        factors: operation → how much longer this machine takes than that one.
        clock: what the seconds are: ``"clock"``, or ``"processor"``: of the processor over all threads.
    """

    seconds: Mapping[str, Mapping[str, float]]
    machine: str = ""
    factors: Mapping[str, float] = field(default_factory=dict)
    clock: str = "clock"

    def of(self, operation: str, amounts: Amounts) -> float:
        """Return the seconds of an operation with these amounts; amounts without a cost are free.

        Example:
            >>> CostCurves({"read": {"reads": 0.5, "read_mb": 0.01}}).of("read", {"reads": 1, "read_mb": 50})
            1.0
        """
        units = self.seconds.get(operation, {})
        total = sum(units.get(name, 0.0) * amount for name, amount in amounts.items())
        return total * self.factors.get(operation, 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return the costs as JSON holds them."""
        return {
            "format": _FORMAT,
            "machine": self.machine,
            "clock": self.clock,
            "factors": dict(self.factors),
            "seconds": {name: dict(sorted(units.items())) for name, units in self.seconds.items()},
        }


@dataclass(frozen=True)
class ExpectedCost:
    """Expected seconds per commit, with the services and reads that come with it.

    Attributes:
        write: of the commit itself: until its rows are visible.
        service: the share of compactions and clusterings.
        read: of the reads between two commits.
    """

    write: float
    service: float
    read: float

    @property
    def total(self) -> float:
        """All three."""
        return self.write + self.service + self.read


def expected_cost(profile: TableProfile, choice: TableChoice, curves: CostCurves) -> ExpectedCost:
    """Return what a choice is expected to cost per commit."""
    amounts = predict_amounts(profile, choice)
    reads = "filter" if profile.filter_columns and choice.table_type == "cow" else "read"
    read = curves.of("read", amounts[reads])
    return ExpectedCost(
        curves.of("write", amounts["write"]),
        curves.of("service", amounts["service"]),
        profile.reads_per_commit * read,
    )


def parse_curves(data: bytes) -> CostCurves:
    """Return the costs that :meth:`CostCurves.as_json` wrote.

    Raises:
        InvalidInputError: they are none.

    Example:
        >>> import json
        >>> curves = CostCurves({"read": {"reads": 0.5}}, "a machine")
        >>> parse_curves(json.dumps(curves.as_json()).encode()) == curves
        True
    """
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInputError("costs must be JSON") from None
    if not isinstance(given, Mapping) or given.get("format") != _FORMAT:
        raise InvalidInputError(f"costs must be a JSON object of format {_FORMAT}")
    clock = given.get("clock", "clock")
    if clock not in ("clock", "processor"):
        raise InvalidInputError("the clock of costs must be 'clock' or 'processor'")
    return CostCurves(
        {name: _numbers(units, f"the costs of {name}", 0.0) for name, units in _operations(given.get("seconds"))},
        str(given.get("machine", ""))[:200],
        _numbers(dict(_operations(given.get("factors", {}))), "factors", 1e-6),
        clock,
    )


def _operations(given: object) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping) or not set(given) <= set(OPERATIONS):
        raise InvalidInputError(f"costs have operations other than {', '.join(OPERATIONS)}")
    return list(given.items())


def _numbers(given: object, what: str, least: float) -> dict[str, float]:
    if not isinstance(given, Mapping) or len(given) > _MOST_UNITS:
        raise InvalidInputError(f"{what} must be an object of at most {_MOST_UNITS} numbers")
    return {str(name): number_argument(value, what, least, _MOST_SECONDS) for name, value in given.items()}
