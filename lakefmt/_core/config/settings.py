"""Resolve and validate the settings of a call (pure).

Classes of settings: *honoured*; *inert*: accepted with a note, because lakefmt does not have what they configure;
*refused*: an error, because ignoring them would break a promise. All others are unknown, also an error.
Precedence: call > handle > table > default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from lakefmt._core.arguments import foreign, is_encodable, mapping_argument, shown
from lakefmt._core.config.catalog import ALL_SETTINGS, Setting, SettingClass, SettingValue
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import UnknownSetting, UnsupportedFeature

__all__ = ["SETTINGS", "Setting", "SettingClass", "SettingValue", "Settings", "resolve_settings", "settings_markdown"]

#: Every setting lakefmt knows, by key.
SETTINGS: Final[dict[str, Setting]] = {setting.key: setting for setting in ALL_SETTINGS}

#: The default of each honoured setting.
_DEFAULTS: Final[dict[str, SettingValue]] = {
    setting.key: setting.default
    for setting in ALL_SETTINGS
    if setting.kind is SettingClass.HONOURED and setting.table_key is None and setting.alias_of is None
}

_LARGEST_NUMBER: Final = 1 << 63

#: Properties that settings repeat: those that are on or off, and those whose capitals matter.
_FLAGS: Final = ("hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode")
_NAMES: Final = ("hoodie.table.name",)

#: Key, type and value of each option given.
_Given = tuple[tuple[str, type, object], ...]


@dataclass(frozen=True)
class Settings:
    """Resolved settings: a value and its origin for each honoured key."""

    values: Mapping[str, SettingValue]
    origins: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def integer(self, key: str) -> int:
        """Return an integer setting."""
        return int(self.number(key))

    def number(self, key: str) -> float:
        """Return a numeric setting."""
        value = self.values[key]
        if not isinstance(value, int | float):
            raise UnknownSetting(f"{key} is not a number: {value!r}")
        return value

    def flag(self, key: str) -> bool:
        """Return a boolean setting; unset counts as false."""
        return self.values[key] is True

    def text(self, key: str) -> str | None:
        """Return a text setting, None when unset."""
        value = self.values[key]
        return None if value is None else str(value)

    def is_asked(self, key: str) -> bool:
        """Return whether the call or the handle names a setting."""
        return self.origins.get(key) in ("call", "handle")

    def explain(self) -> str:
        """Return one line per setting: its value and its origin (call, handle, table or default).

        Example:
            >>> "lakefmt.durability = fsync (default)" in resolve_settings({}).explain()
            True
        """
        return "\n".join(f"{key} = {self.values[key]} ({self.origins[key]})" for key in sorted(self.values))


def resolve_settings(
    call: Mapping[str, object],
    handle: Mapping[str, object] | None = None,
    table: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings of one call: call > handle > table > default.

    Args:
        call: options of the call.
        handle: options of the open handle.
        table: the table's properties (only keys that are settings count).

    Raises:
        UnknownSetting: no such setting (the nearest is named), or a value it does not take.
        UnsupportedFeature: a setting that lakefmt cannot honour.

    Example:
        >>> resolve_settings({"lakefmt.durability": "none"}).text("lakefmt.durability")
        'none'
    """
    of_call, of_handle = (
        () if each is None else tuple((k, type(value), value) for k, value in mapping_argument(each, "options").items())
        for each in (call, handle)
    )
    properties = tuple((table or {}).items())
    try:
        return _resolved(of_call, of_handle, properties)
    except TypeError:
        # A value without a hash, such as a list, cannot be cached; _parse refuses it.
        return _resolved.__wrapped__(of_call, of_handle, properties)


@lru_cache(maxsize=64)
def _resolved(call: _Given, handle: _Given, table: tuple[tuple[str, str], ...]) -> Settings:
    # Cached: a commit asks six times. Types are part of the key, because True equals 1 but is another value.
    values: dict[str, SettingValue] = dict(_DEFAULTS)
    origins = dict.fromkeys(values, "default")
    notes: list[str] = []
    properties = dict(table)
    for key in values.keys() & properties.keys():
        values[key], origins[key] = _parse(SETTINGS[key], properties[key]), "table"
    for origin, given in (("handle", handle), ("call", call)):
        for key, _, value in given:
            setting = _known(key)
            note = _check_class(setting, _text_of(setting, value), properties)
            if note is not None:
                notes.append(note)
            _take(setting, value, origin, values, origins)
    return Settings(values, origins, tuple(notes))


def _take(
    setting: Setting, value: object, origin: str, values: dict[str, SettingValue], origins: dict[str, str]
) -> None:
    """Store a value under the setting's present name."""
    key = setting.alias_of or setting.key
    if key not in values:
        return
    parsed = _parse(SETTINGS[key], value)
    if origins[key] == origin and values[key] != parsed:
        raise UnknownSetting(
            f"{setting.key}={value} contradicts {key}={values[key]}: the first is an older name of the second"
        )
    values[key], origins[key] = parsed, origin


def _known(key: str) -> Setting:
    setting = SETTINGS.get(key)
    if setting is None:
        import difflib

        near = difflib.get_close_matches(key, SETTINGS, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownSetting(f"unknown setting {key!r}{hint}")
    return setting


def _check_class(setting: Setting, value: str, properties: Mapping[str, str]) -> str | None:
    if setting.kind is SettingClass.REFUSED and value.lower() not in ("false", ""):
        raise UnsupportedFeature(f"setting {setting.key}={value} is not supported: {setting.doc}")
    if setting.kind is SettingClass.INERT:
        return f"{setting.key} has no effect: {setting.doc}"
    if setting.table_key is not None and properties:
        stored = properties.get(setting.table_key)
        if stored is None and setting.table_key == "hoodie.table.precombine.field":
            stored = properties.get("hoodie.table.ordering.fields")
        if not _says_the_same(setting.table_key, value, stored):
            there = f"property {setting.table_key}={stored}" if stored else f"which has no {setting.table_key}"
            raise UnknownSetting(f"{setting.key}={value} contradicts the table{' ' if stored else ', '}{there}")
    return None


def _says_the_same(table_key: str, value: str, stored: str | None) -> bool:
    """Return whether a setting repeats what a table's property says, in whichever spelling.

    Example:
        >>> _says_the_same("hoodie.table.partition.fields", "country, city", "country:SIMPLE,city:SIMPLE")
        True
        >>> _says_the_same("hoodie.table.type", "merge_on_read", "MERGE_ON_READ")
        True
        >>> _says_the_same("hoodie.table.recordkey.fields", "id", None)
        False
    """
    if table_key.endswith((".fields", ".field")):
        given, there = ([part.strip() for part in (text or "").split(",")] for text in (value, stored))
        return len(given) == len(there) and all(map(_is_same_field, given, there))
    if stored is None:
        return value.lower() == "false" or table_key not in _FLAGS  # what a table does not say is off, or has no name
    return value == stored or (table_key not in _NAMES and value.lower() == stored.lower())


def _is_same_field(given: str, stored: str) -> bool:
    """Return whether a field is another, which may say its kind (``city:SIMPLE``) where this one does not."""
    (name, _, kind), (other, _, other_kind) = given.partition(":"), stored.partition(":")
    return name == other and (not kind or not other_kind or kind.upper() == other_kind.upper())


def _text_of(setting: Setting, value: object) -> str:
    """Return the text of a value."""
    text = foreign(lambda: str(value), f"{setting.key} does not take {shown(value)}", UnknownSetting)
    if not is_encodable(text):
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: it holds half a surrogate pair")
    return text


def _parse(setting: Setting, value: object) -> SettingValue:
    text = _text_of(setting, value)
    if isinstance(value, bool) or setting.choices:
        text = text.lower()
    try:
        parsed = setting.parse(text)
    except (ValueError, OverflowError) as error:
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: {error}") from None
    if setting.choices and text not in setting.choices:
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: expected {', '.join(setting.choices)}")
    if isinstance(parsed, int | float) and not abs(parsed) < _LARGEST_NUMBER:
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: it does not fit into 64 bits")
    if setting.minimum is not None and isinstance(parsed, int | float) and parsed < setting.minimum:
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: at least {setting.minimum:g} is needed")
    return parsed


def settings_markdown() -> str:
    """Return the table of all settings in Markdown for docs/settings.md.

    Example:
        >>> settings_markdown().splitlines()[0]
        '| setting | class | default | meaning |'
    """
    # Settings that are not honoured, for one reason, share a row.
    rows: dict[str, list[str]] = {}
    for setting in ALL_SETTINGS:
        default = str(setting.default).lower() if isinstance(setting.default, bool) else setting.default
        kind = "table" if setting.table_key else "alias" if setting.alias_of else setting.kind.value
        choices = f" (one of {', '.join(setting.choices)})" if setting.choices else ""
        shown = "" if default is None else f"`{default}`"
        rows.setdefault(f"{kind} | {shown} | {setting.doc}{choices}", []).append(f"`{setting.key}`")
    lines = [f"| {', '.join(names)} | {row} |" for row, names in rows.items()]
    return "\n".join(["| setting | class | default | meaning |", "|---|---|---|---|", *lines])
