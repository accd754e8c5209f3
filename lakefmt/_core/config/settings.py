"""Resolve and validate the settings of a call (pure).

Classes of settings: *honoured*; *inert*: accepted with a note, because lakefmt does not have what they configure;
*refused*: an error, because ignoring them would break a promise. All others are unknown, also an error.
Precedence: call > handle > table > default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from lakefmt._core.arguments import foreign, is_encodable, mapping_argument, shown
from lakefmt._core.config.catalog import ALL_SETTINGS, Setting, SettingClass, SettingValue
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

__all__ = [
    "SETTINGS",
    "Setting",
    "SettingClass",
    "SettingValue",
    "Settings",
    "check_restated",
    "raise_problems",
    "resolve_properties",
    "resolve_settings",
    "settings_markdown",
]

#: Every setting lakefmt knows, by key.
SETTINGS: Final[dict[str, Setting]] = {setting.key: setting for setting in ALL_SETTINGS}

#: The default of each honoured setting.
_DEFAULTS: Final[dict[str, SettingValue]] = {
    setting.key: setting.default
    for setting in ALL_SETTINGS
    if setting.kind is SettingClass.HONOURED and setting.table_key is None and setting.alias_of is None
}

_LARGEST_NUMBER: Final = 1 << 63
#: What becomes of a name that is no setting.
_UNKNOWN: Final = "lakefmt.unknown.options"
#: The switch of all services, and those that a commit runs or plans.
_SERVICES: Final = "hoodie.table.services.enabled"
_SERVICES_OF_COMMITS: Final = (
    "hoodie.archive.automatic",
    "hoodie.clean.automatic",
    "hoodie.clustering.async.enabled",
    "hoodie.clustering.inline",
    "hoodie.clustering.schedule.inline",
    "hoodie.compact.inline",
    "hoodie.compact.schedule.inline",
    "hoodie.log.compaction.inline",
)

#: Properties that settings repeat: those that are on or off, and those whose capitals matter.
_FLAGS: Final = ("hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode")
_NAMES: Final = ("hoodie.table.name",)

#: Key, type and value of each option given.
_Entries = tuple[tuple[str, type, object], ...]


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
        UnknownSetting: no such setting (the nearest is named), or a value it does not take. All problems are in one error.
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
def _resolved(call: _Entries, handle: _Entries, table: tuple[tuple[str, str], ...]) -> Settings:
    # Cached: a commit asks six times. Types are part of the key, because True equals 1 but is another value.
    values: dict[str, SettingValue] = dict(_DEFAULTS)
    origins = dict.fromkeys(values, "default")
    notes: list[str] = []
    problems: list[UnknownSetting | UnsupportedFeature] = []
    properties = dict(table)
    for key in values.keys() & properties.keys():
        values[key], origins[key] = _parse(SETTINGS[key], properties[key]), "table"
    unknown = _unknown_names(handle, call, properties)
    for origin, entries in (("handle", handle), ("call", call)):
        for key, _, value in entries:
            try:
                setting = _known(key)
                note = _note(key) if setting is None else _check_class(setting, _text_of(setting, value), properties)
                if setting is None and unknown == "refuse":
                    raise UnknownSetting(_unknown_text(key))
                if setting is not None:
                    _take(setting, value, origin, values, origins)
            except (UnknownSetting, UnsupportedFeature) as error:
                problems.append(error)
            else:
                notes += [] if note is None else [note]
    raise_problems(problems)
    if values[_SERVICES] is False:
        values.update(dict.fromkeys(_SERVICES_OF_COMMITS, False))
        origins.update(dict.fromkeys(_SERVICES_OF_COMMITS, origins[_SERVICES]))
    return Settings(values, origins, tuple(notes))


def resolve_properties(
    properties: Mapping[str, str], known: Sequence[str], settings: Settings
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the properties of a new table, older names of settings replaced, and notes of those without effect.

    Names that begin neither with ``hoodie.`` nor with ``lakefmt.`` are the user's own, unless one is a slip of a known name.

    Args:
        properties: by names.
        known: names of properties beside settings and Hudi's options; one that ends with a dot is a beginning.
        settings: those of the call, which say what becomes of unknown names.

    Raises:
        UnknownSetting: there is no such name (the nearest is named), or a value it does not take. All problems are in one error.
        UnsupportedFeature: a setting that lakefmt cannot honour.

    Example:
        >>> resolve_properties({"hoodie.cleaner.commits.retained": "3", "team": "maps"}, (), resolve_settings({}))
        ({'hoodie.clean.commits.retained': '3', 'team': 'maps'}, ())
    """
    resolved: dict[str, str] = {}
    notes: list[str] = []
    problems: list[UnknownSetting | UnsupportedFeature] = []
    for key, value in properties.items():
        try:
            if not _is_named(key, known):
                key = _known_property(key, value, notes, refuses=settings.text(_UNKNOWN) == "refuse")
            if resolved.setdefault(key, value) != value:
                raise UnknownSetting(
                    f"properties say both {key}={resolved[key]} and {key}={value}, one by an older name"
                )
        except (UnknownSetting, UnsupportedFeature) as error:
            problems.append(error)
    raise_problems(problems)
    return resolved, tuple(notes)


def _is_named(key: str, known: Sequence[str]) -> bool:
    return key in known or key.startswith(tuple(name for name in known if name.endswith(".")))


def _known_property(key: str, value: str, notes: list[str], *, refuses: bool) -> str:
    """Return the present name of a property that is a setting, an option of Hudi or the user's own; add what has no effect."""
    setting = _known(key)
    if setting is None:
        from lakefmt._core.config.hudi_options import similar_names

        if not key.startswith(("hoodie.", "lakefmt.")) and not similar_names(key):
            return key
        if refuses:
            raise UnknownSetting(_unknown_text(key))
        notes.append(_note(key))
        return key
    note = _check_class(setting, value, {})
    if note is not None:
        notes.append(note)
    name = setting.alias_of or key
    if name in _DEFAULTS:
        _parse(SETTINGS[name], value)
    return name


def check_restated(properties: Mapping[str, str], table: Mapping[str, str]) -> None:
    """Raise when properties say under a name of Spark's what a table's property says otherwise.

    Raises:
        UnknownSetting: one does.

    Example:
        >>> check_restated({"hoodie.datasource.write.recordkey.field": "n"}, {"hoodie.table.recordkey.fields": "id"})
        Traceback (most recent call last):
            ...
        lakefmt.errors.UnknownSetting: hoodie.datasource.write.recordkey.field=n contradicts the table property \
hoodie.table.recordkey.fields=id
    """
    for key, value in properties.items():
        setting = SETTINGS.get(key)
        if setting is not None and setting.table_key is not None:
            _check_class(setting, value, table)


def raise_problems(problems: Sequence[UnknownSetting | UnsupportedFeature | InvalidInputError]) -> None:
    """Raise what is wrong with options, all of it in one error of the first one's type; nothing, if nothing is.

    Raises:
        UnknownSetting: an option that is not known, or a value that it does not take; or this beside another problem.
        UnsupportedFeature: options that lakefmt cannot honour.
        InvalidInputError: options that contradict each other.
    """
    if len(problems) < 2:
        for problem in problems:
            raise problem
        return
    worst = next((each for each in problems if isinstance(each, UnknownSetting)), problems[0])
    lines = "\n".join(f"  {problem}" for problem in problems)
    raise type(worst)(f"{len(problems)} options cannot be used:\n{lines}")


def _unknown_names(handle: _Entries, call: _Entries, properties: Mapping[str, str]) -> str:
    """Return what becomes of unknown names: ``refuse`` or ``warn``."""
    modes = {key: value for key, _, value in (*handle, *call) if key == _UNKNOWN}
    return str(_parse(SETTINGS[_UNKNOWN], modes.get(_UNKNOWN, properties.get(_UNKNOWN, "refuse"))))


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


def _known(key: str) -> Setting | None:
    """Return a setting, or an option that Hudi publishes as one; None: there is no such name."""
    setting = SETTINGS.get(key)
    if setting is None:
        from lakefmt._core.config.hudi_options import setting_of  # hundreds of names, which few programs give

        return setting_of(key)
    return setting


def _note(key: str) -> str:
    return f"{key} has no effect: there is no such setting"


def _unknown_text(key: str) -> str:
    from lakefmt._core.config.hudi_options import similar_names

    near = similar_names(key)
    hint = f"; did you mean {near[0]}?" if near else f"; {_UNKNOWN}=warn leaves it out with a warning"
    return f"unknown setting {key!r}{hint}"


def _check_class(setting: Setting, value: str, properties: Mapping[str, str]) -> str | None:
    if setting.kind is SettingClass.REFUSED and value.lower() not in ("", *(setting.choices or ("false",))):
        raise UnsupportedFeature(f"setting {setting.key}={value} is not supported: {setting.doc}")
    if setting.kind is SettingClass.INERT:
        return f"{setting.key} has no effect: {setting.doc}"
    if setting.table_key is not None and properties:
        stored = properties.get(setting.table_key)
        if stored is None and isinstance(setting.default, str):
            stored = setting.default
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
        fields, there = ([part.strip() for part in (text or "").split(",")] for text in (value, stored))
        return len(fields) == len(there) and all(map(_is_same_field, fields, there))
    if stored is None:
        return value.lower() == "false" or table_key not in _FLAGS  # what a table does not say is off, or has no name
    return value == stored or (table_key not in _NAMES and value.lower() == stored.lower())


def _is_same_field(field: str, stored: str) -> bool:
    """Return whether a field is another, which may say its kind (``city:SIMPLE``) where this one does not."""
    (name, _, key_type), (other, _, other_key_type) = field.partition(":"), stored.partition(":")
    return name == other and (not key_type or not other_key_type or key_type.upper() == other_key_type.upper())


def _text_of(setting: Setting, value: object) -> str:
    """Return the text of a value."""
    text = foreign(lambda: str(value), f"{setting.key} does not take {shown(value)}", UnknownSetting)
    if not is_encodable(text):
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: it holds half a surrogate pair")
    return text


def _parse(setting: Setting, value: object) -> SettingValue:
    value_text = _text_of(setting, value)
    if isinstance(value, bool) or setting.choices:
        value_text = value_text.lower()
    try:
        parsed = setting.parse(value_text)
    except (ValueError, OverflowError) as error:
        raise UnknownSetting(f"{setting.key} does not take {shown(value)}: {error}") from None
    if setting.choices and value_text not in setting.choices:
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
        class_name = "table" if setting.table_key else "alias" if setting.alias_of else setting.kind.value
        choices = f" (one of {', '.join(setting.choices)})" if setting.choices else ""
        default_text = "" if default is None else f"`{default}`"
        rows.setdefault(f"{class_name} | {default_text} | {setting.doc}{choices}", []).append(f"`{setting.key}`")
    lines = [f"| {', '.join(names)} | {row} |" for row, names in rows.items()]
    return "\n".join(["| setting | class | default | meaning |", "|---|---|---|---|", *lines])
