"""What a setting is: its key, type, default, class and reason (pure)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Setting", "SettingClass", "SettingValue"]

SettingValue = str | int | float | bool | None


class SettingClass(enum.Enum):
    """What becomes of a setting."""

    HONOURED = "honoured"
    INERT = "inert"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key, type, default, and the reason for either.

    ``table_key`` marks settings that restate a property of the table: accepted when they agree with it.
    ``alias_of`` marks older names of another setting.
    """

    key: str
    parse: Callable[[str], SettingValue]
    default: SettingValue
    doc: str
    kind: SettingClass = SettingClass.HONOURED
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    table_key: str | None = None
    alias_of: str | None = None
