"""Key specs from arguments and table properties, and back, and their check against stored rows. Pure.

Names and forms: docs/format.md, Property keys; Key generators. The properties do not tell all that makes keys and paths: a writer
may have been given more settings than it stored. So stored rows are compared with the keys and the path that were stored of them
(:func:`compare_stored_rows`; docs/format.md, Record keys).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.keys.generate import build_partition_paths, build_record_keys
from lakefmt._core.keys.partition_path import DEFAULT_PARTITION
from lakefmt._core.keys.spec import KeyGeneratorType, KeySpec, PartitionField, TimestampSpec, TimestampType
from lakefmt._core.schema.types import field_at, storage_type
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import InvalidKey, LakefmtError, UnknownSetting, UnsupportedFeature

__all__ = [
    "GENERATOR_KEYS",
    "StoredRule",
    "check_generator",
    "compare_stored_rows",
    "key_properties",
    "key_spec_from_properties",
    "plan_key_spec",
]

_KEY_FIELDS: Final = "hoodie.table.recordkey.fields"
_PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
_GENERATOR_TYPE: Final = "hoodie.table.keygenerator.type"
_GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
_HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
_URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
_CONSISTENT_TIMESTAMPS: Final = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
_NEW_ENCODING: Final = "hoodie.write.complex.keygen.new.encoding"
_SLASH_DATES: Final = "hoodie.datasource.write.slash.separated.date.partitioning"
#: Every name by which a key generator is asked for.
GENERATOR_KEYS: Final = (
    _GENERATOR_CLASS,
    _GENERATOR_TYPE,
    "hoodie.datasource.write.keygenerator.type",
    "hoodie.datasource.write.keygenerator.class",
)
_TIMEBASED: Final = "hoodie.keygen.timebased."
_TIMEBASED_OLD: Final = "hoodie.deltastreamer.keygen.timebased."
_MICROS: Final = "MICROSECONDS"
_PLAIN_DELIMITER: Final = re.compile(r"(?:\\[^A-Za-z0-9]|[^\\.^$*+?{}\[\]|()])+")
_MAX_PARTITION_ITEM: Final = 500
_PARTITION_ITEM: Final = re.compile(r"([^:()]+)(?::\s*(\w+)\s*(?:\((.*)\))?)?\s*", re.DOTALL)


# ------------------------------------------------------------------------------------------------------ a new table


def plan_key_spec(
    record_key: str | Sequence[str] | None,
    partition_by: str | Sequence[str] | None,
    hive_style: bool = True,
    url_encode: bool = True,
    properties: Mapping[str, str] | None = None,
    schema: pa.Schema | None = None,
) -> KeySpec:
    """Return the key spec of a new table (docs/format.md, Key generators; Complex keys of one field).

    `record_key` and `partition_by` name columns; a partition is ``"city"``, ``"city:SIMPLE"``,
    ``"ts:timestamp(yyyy/MM/dd)"`` or ``"ts:timestamp(yyyy/MM/dd, EPOCHMILLISECONDS)"``.
    `properties` may name a generator and contain ``hoodie.keygen.timebased.*``. With `schema` the
    columns are checked, and the type of a timestamp column is derived. One key field with several
    partition fields gets CUSTOM, because COMPLEX has two forms of such keys.

    Raises:
        InvalidKey: a missing or repeated column, or a generator that does not match the fields.
        UnknownSetting: an unknown or missing generator, time unit, timestamp type or zone.
        UnsupportedFeature: an unsupported date pattern, zone or generator.

    Example:
        >>> plan_key_spec("uuid", ["country", "city"]).generator.name
        'CUSTOM'
    """
    props = dict(properties or {})
    keys = tuple(_split_fields(record_key))
    _check_fields(keys, schema, "record key")
    items = [_parse_item(item) for item in _split_fields(partition_by)]
    _check_fields([name for name, _, _ in items], schema, "partition")
    requested_generator = _asked_generator(props)
    partitions = tuple(_planned_partition_field(item, requested_generator, props, schema) for item in items)
    _check_zones({zone for each in partitions if each.timestamp is not None for zone in each.timestamp.zones})
    generator = requested_generator or _inferred_generator(
        len(keys), partitions, any(key_type for _, key_type, _ in items)
    )
    if _is_true(props, _SLASH_DATES):
        raise UnsupportedFeature(f"{_SLASH_DATES} is not supported: use a timestamp partition with yyyy/MM/dd")
    _check_generator(generator, keys, partitions)
    complex_single = generator in (KeyGeneratorType.COMPLEX, KeyGeneratorType.GLOBAL_DELETE) and len(keys) == 1
    return KeySpec(
        keys,
        partitions,
        generator,
        hive_style,
        url_encode,
        complex_single or None,
        _is_true(props, _CONSISTENT_TIMESTAMPS),
    )


def _check_zones(zones: Iterable[str]) -> None:
    for zone in zones:
        from lakefmt._core.keys.joda import check_new_zone  # few tables have partitions of times

        check_new_zone(zone)


def _split_fields(fields: str | Sequence[str] | None) -> list[str]:
    if fields is None:
        return []
    texts = [fields] if isinstance(fields, str) else list(fields)
    parts = [part.strip() for text in texts for part in _at_commas(text)]
    return [part for part in parts if part]


def _at_commas(text: str) -> Iterable[str]:
    """Split at commas outside of parentheses."""
    waiting = ""
    for part in text.split(","):
        waiting = f"{waiting},{part}" if waiting else part
        if "(" not in waiting or ")" in part or len(waiting) > _MAX_PARTITION_ITEM:
            yield waiting
            waiting = ""
    yield waiting


def _parse_item(item: str) -> tuple[str, str, str]:
    match = _PARTITION_ITEM.fullmatch(item) if len(item) <= _MAX_PARTITION_ITEM else None
    key_type = (match[2] or "").upper() if match else "?"
    if (
        match is None
        or key_type not in ("", "SIMPLE", "TIMESTAMP")
        or (match[3] is not None and key_type != "TIMESTAMP")
    ):
        raise InvalidKey(
            f"{item[:_MAX_PARTITION_ITEM]!r} is no partition: 'field', 'field:SIMPLE' or 'field:timestamp(yyyy/MM/dd)' is expected"
        )
    return match[1].strip(), key_type, (match[3] or "").strip()


def _check_fields(names: Sequence[str], schema: pa.Schema | None, what: str) -> None:
    for name in names:
        if name in META_COLUMNS:
            raise InvalidKey(f"{name} is a meta column and cannot be a {what} field")
        if schema is not None and field_at(schema, name) is None:
            raise InvalidKey(f"{what} field {name!r} is not a column: there are {', '.join(schema.names[:20])}")
    if len(set(names)) != len(names):
        raise InvalidKey(f"a {what} field is named twice: {', '.join(names)}")


def _asked_generator(props: Mapping[str, str]) -> KeyGeneratorType | None:
    generators = {key: KeyGeneratorType.parse(props[key]) for key in GENERATOR_KEYS if props.get(key)}
    if len(set(generators.values())) > 1:
        raise InvalidKey(f"properties name several key generators: {', '.join(f'{k}={props[k]}' for k in generators)}")
    return next(iter(generators.values()), None)


def check_generator(given: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Raise when a call names another key generator than the table has: rows would get other keys than the caller means.

    Args:
        given: what the call says, by the names of ``GENERATOR_KEYS``.
        properties: the table's.

    Raises:
        InvalidKey: it does; the message names both.
        UnknownSetting: it names none of Hudi's.

    Example:
        >>> check_generator({"hoodie.datasource.write.keygenerator.type": "COMPLEX"}, {
        ...     "hoodie.table.recordkey.fields": "id", "hoodie.table.keygenerator.type": "NON_PARTITION"})
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidKey: hoodie.datasource.write.keygenerator.type=COMPLEX contradicts the table, whose key generator is NON_PARTITION: leave the option out
    """
    for key in GENERATOR_KEYS:
        generator_name = given.get(key)
        if not generator_name:
            continue
        spec = key_spec_from_properties(properties)
        stored = properties.get(_GENERATOR_CLASS) or properties.get(_GENERATOR_TYPE) or spec.generator.name
        if generator_name.strip() != stored.strip() and KeyGeneratorType.parse(generator_name) is not spec.generator:
            raise InvalidKey(
                f"{key}={generator_name} contradicts the table, whose key generator is {stored}: leave the option out"
            )


def _planned_partition_field(
    item: tuple[str, str, str],
    requested_generator: KeyGeneratorType | None,
    props: Mapping[str, str],
    schema: pa.Schema | None,
) -> PartitionField:
    name, key_type, inside = item
    if key_type != "TIMESTAMP" and not (requested_generator is KeyGeneratorType.TIMESTAMP and not key_type):
        return PartitionField(name)
    pattern, _, word = inside.rpartition(",")
    if word.strip().upper() in TimestampType.__members__:
        inside, props = pattern.strip(), {**props, _TIMEBASED + "timestamp.type": word.strip().upper()}
    field = field_at(schema, name) if schema is not None else None
    return PartitionField(name, "timestamp", _timestamp_spec(props, inside, field))


def _inferred_generator(keys: int, partitions: Sequence[PartitionField], typed: bool) -> KeyGeneratorType:
    if not partitions:
        return KeyGeneratorType.NON_PARTITION
    if len(partitions) == 1 and partitions[0].timestamp is not None and keys <= 1:
        return KeyGeneratorType.TIMESTAMP
    if typed or (keys == 1 and len(partitions) > 1):
        return KeyGeneratorType.CUSTOM
    return KeyGeneratorType.SIMPLE if keys <= 1 and len(partitions) == 1 else KeyGeneratorType.COMPLEX


def _check_generator(generator: KeyGeneratorType, keys: Sequence[str], partitions: Sequence[PartitionField]) -> None:
    timed = [each for each in partitions if each.timestamp is not None]
    if len({each.timestamp for each in timed}) > 1:
        raise InvalidKey("a table has one way to format times: all timestamp partitions need the same pattern and kind")
    name = generator.name
    if generator is KeyGeneratorType.USER_PROVIDED:
        raise UnsupportedFeature("a key generator of one's own cannot be reproduced here")
    if generator in (KeyGeneratorType.SIMPLE, KeyGeneratorType.TIMESTAMP) and (len(keys) > 1 or len(partitions) != 1):
        raise InvalidKey(
            f"the generator {name} takes one key field and one partition field: leave it out or use CUSTOM"
        )
    if generator in (KeyGeneratorType.NON_PARTITION, KeyGeneratorType.GLOBAL_DELETE) and partitions:
        raise InvalidKey(f"the generator {name} makes no partitions, but {partitions[0].name!r} is given")
    if generator in (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX) and timed:
        raise InvalidKey(f"the generator {name} knows no timestamp partitions: leave it out or use CUSTOM")
    if generator is KeyGeneratorType.AUTO_RECORD and keys:
        raise InvalidKey(f"the generator {name} generates keys, but {keys[0]!r} is given as the record key")


# ------------------------------------------------------------------------------------------------ timestamp settings


def _timestamp_spec(props: Mapping[str, str], pattern: str = "", field: pa.Field | None = None) -> TimestampSpec:
    formats = _input_formats(props)
    timestamp_type, unit = _time_kind(props, bool(formats), field)
    return TimestampSpec(
        pattern or _timebased(props, "output.dateformat"),
        timestamp_type,
        unit,
        formats,
        _zone(props, "input.timezone"),
        _zone(props, "output.timezone"),
    )


def _zone(props: Mapping[str, str], key: str) -> str | None:
    """Return a zone name unchanged, blanks included: Java does not strip it."""
    for name in ("timezone", key):
        stated = [props[prefix + name] for prefix in (_TIMEBASED, _TIMEBASED_OLD) if prefix + name in props]
        if stated:
            return stated[0] if stated[0].strip() else None
    return None


def _timebased(props: Mapping[str, str], key: str) -> str:
    return (props.get(_TIMEBASED + key) or props.get(_TIMEBASED_OLD + key) or "").strip()


def _input_formats(props: Mapping[str, str]) -> tuple[str, ...]:
    formats, between = _timebased(props, "input.dateformat"), _timebased(props, "input.dateformat.list.delimiter.regex")
    # A stored regular expression is not executed: only one that is a plain text is accepted.
    if between and not _PLAIN_DELIMITER.fullmatch(between):
        raise UnsupportedFeature(f"the delimiter {between!r} of several date formats is not supported: use a comma")
    parts = formats.split(re.sub(r"\\(.)", r"\1", between) or ",")
    return tuple(part.strip() for part in parts if part.strip())


def _time_kind(props: Mapping[str, str], has_formats: bool, field: pa.Field | None) -> tuple[TimestampType, str]:
    stated, unit = _timebased(props, "timestamp.type").upper(), _timebased(props, "timestamp.scalar.time.unit").upper()
    if stated:
        if stated not in TimestampType.__members__:
            raise UnknownSetting(f"{stated!r} is no timestamp type: {', '.join(TimestampType.__members__)}")
        return TimestampType[stated], unit or "SECONDS"
    if has_formats:
        return TimestampType.DATE_STRING, "SECONDS"
    data_type = storage_type(field.type) if field is not None else pa.null()
    if pt.is_timestamp(data_type):
        return (
            TimestampType.EPOCHMILLISECONDS if data_type.unit == "ms" else TimestampType.EPOCHMICROSECONDS
        ), "SECONDS"
    if pt.is_date(data_type):
        return TimestampType.SCALAR, "DAYS"
    raise UnknownSetting(
        f"{_TIMEBASED}timestamp.type is missing: it says what the numbers or texts of the partition column mean, "
        f"one of {', '.join(TimestampType.__members__)}"
    )


# ----------------------------------------------------------------------------------------------- an existing table


def key_spec_from_properties(props: Mapping[str, str]) -> KeySpec:
    """Return the key spec of a table; never raises for a spec that lakefmt does not support.

    Reads generator classes (version 6, upgraded tables), generator types (from version 8 on) and
    the old prefix of ``hoodie.keygen.timebased.*``. See :attr:`KeySpec.unsupported`.

    Example:
        >>> key_spec_from_properties({"hoodie.table.recordkey.fields": "id", "hoodie.table.partition.fields": "city",
        ...     "hoodie.table.keygenerator.type": "SIMPLE"}).partition_fields[0].name
        'city'
    """
    keys, items = tuple(_split_fields(props.get(_KEY_FIELDS))), _split_fields(props.get(_PARTITION_FIELDS))
    generator, unsupported = _stated_generator(props, len(keys), items)
    if generator in (KeyGeneratorType.NON_PARTITION, KeyGeneratorType.GLOBAL_DELETE):
        items = []
    if _is_true(props, _SLASH_DATES):
        unsupported = unsupported or f"{_SLASH_DATES} is set"
    try:
        partitions = tuple(_stored_field(item, generator, len(items), props) for item in items)
    except LakefmtError as error:
        unsupported = unsupported or str(error)
        partitions = tuple(PartitionField(item.partition(":")[0].strip()) for item in items)
    return KeySpec(
        keys,
        partitions,
        generator,
        _is_true(props, _HIVE_STYLE),
        _is_true(props, _URL_ENCODE),
        _single_prefixed(props, generator, keys),
        _is_true(props, _CONSISTENT_TIMESTAMPS),
        unsupported,
    )


def _is_true(props: Mapping[str, str], key: str) -> bool:
    return props.get(key, "").strip().lower() == "true"


def _stated_generator(props: Mapping[str, str], keys: int, items: Sequence[str]) -> tuple[KeyGeneratorType, str]:
    # With both (an upgraded table) the class counts, as in Hudi.
    stated = props.get(_GENERATOR_CLASS) or props.get(_GENERATOR_TYPE)
    if not stated:
        fields = [PartitionField(item) for item in items]
        typed = any(":" in item for item in items)
        if not typed and len(items) > 1:
            return KeyGeneratorType.COMPLEX, ""
        return _inferred_generator(keys, fields, typed), ""
    try:
        generator = KeyGeneratorType.parse(stated)
    except UnknownSetting:
        return KeyGeneratorType.USER_PROVIDED, f"the key generator {stated[:200]} cannot be reproduced here"
    if generator is KeyGeneratorType.USER_PROVIDED:
        return generator, "a key generator of somebody's own cannot be reproduced here"
    return generator, ""


def _stored_field(item: str, generator: KeyGeneratorType, count: int, props: Mapping[str, str]) -> PartitionField:
    name, key_type, _ = _parse_item(item)
    timed = key_type == "TIMESTAMP" or (generator is KeyGeneratorType.TIMESTAMP and not key_type)
    if generator is KeyGeneratorType.CUSTOM and not key_type and _timebased(props, "output.dateformat"):
        if count > 1:
            raise UnsupportedFeature("the table does not say which of its partition fields are timestamps")
        timed = True
    return PartitionField(name, "timestamp", _timestamp_spec(props)) if timed else PartitionField(name)


def _single_prefixed(props: Mapping[str, str], generator: KeyGeneratorType, keys: Sequence[str]) -> bool | None:
    if len(keys) != 1 or generator not in (KeyGeneratorType.COMPLEX, KeyGeneratorType.GLOBAL_DELETE):
        return None
    if props.get("hoodie.table.version", "").strip() == "9":
        return True
    return not _is_true(props, _NEW_ENCODING) if props.get(_NEW_ENCODING) else None


def key_properties(spec: KeySpec, table_version: int) -> dict[str, str]:
    """Return the table properties of `spec` for version 6, 8 or 9 (docs/format.md, Property keys).

    Raises:
        UnsupportedFeature: lakefmt does not support the spec, or version 6 cannot store it.

    Example:
        >>> key_properties(plan_key_spec("id", "city"), 8)["hoodie.table.keygenerator.type"]
        'SIMPLE'
    """
    if spec.unsupported:
        raise UnsupportedFeature(spec.unsupported)
    properties = {_HIVE_STYLE: _true_or_false(spec.hive_style), _URL_ENCODE: _true_or_false(spec.url_encode)}
    if spec.record_key_fields:
        properties[_KEY_FIELDS] = ",".join(spec.record_key_fields)
    if spec.partition_fields:
        properties[_PARTITION_FIELDS] = ",".join(_stored_items(spec, table_version))
    if table_version == 6:
        properties[_GENERATOR_CLASS] = spec.generator.class_name
    else:
        properties[_GENERATOR_TYPE] = spec.generator.name
    if spec.consistent_logical_timestamps:
        properties[_CONSISTENT_TIMESTAMPS] = "true"
    if spec.complex_single_prefixed is not None and table_version < 9:
        # Else nobody knows the form of the first key; what Hudi 1.2 takes by default in versions 6 and 8.
        properties[_NEW_ENCODING] = _true_or_false(not spec.complex_single_prefixed)
    timed = next((each.timestamp for each in spec.partition_fields if each.timestamp is not None), None)
    return properties | (_timestamp_properties(timed, table_version) if timed is not None else {})


def _true_or_false(flag: bool) -> str:
    return "true" if flag else "false"


def _stored_items(spec: KeySpec, table_version: int) -> Iterable[str]:
    fields = spec.partition_fields
    if spec.generator is not KeyGeneratorType.CUSTOM:
        return [each.name for each in fields]
    if table_version > 6:
        return [f"{each.name}:{each.kind.upper()}" for each in fields]
    if len(fields) > 1 and any(each.timestamp is not None for each in fields):
        raise UnsupportedFeature(
            "version 6 cannot keep which of several partition fields are timestamps: use version 8"
        )
    return [each.name for each in fields]


def _timestamp_properties(spec: TimestampSpec, table_version: int) -> dict[str, str]:
    timestamp_type, unit = spec.type.name, spec.scalar_unit
    if spec.type is TimestampType.EPOCHMICROSECONDS and table_version == 6:
        # Releases that write version 6 lack this type; a scalar in microseconds is the same.
        timestamp_type, unit = TimestampType.SCALAR.name, _MICROS
    properties = {"timestamp.type": timestamp_type, "output.dateformat": spec.output_format}
    if timestamp_type == TimestampType.SCALAR.name:
        properties["timestamp.scalar.time.unit"] = unit
    if spec.input_formats:
        between = next((mark for mark in ",;#" if not any(mark in each for each in spec.input_formats)), None)
        if between is None:
            raise UnsupportedFeature("the input formats use every character that could stand between them: , ; and #")
        properties["input.dateformat"] = between.join(spec.input_formats)
        if between != ",":
            properties["input.dateformat.list.delimiter.regex"] = between
    if spec.input_timezone and spec.input_timezone == spec.output_timezone:
        properties["timezone"] = spec.input_timezone
    else:
        zones = {"input.timezone": spec.input_timezone, "output.timezone": spec.output_timezone}
        properties |= {key: zone for key, zone in zones.items() if zone}
    return {_TIMEBASED + key: value for key, value in properties.items()}


# ---------------------------------------------------------------------------------------------------------- stored rows

#: The partition of null values in tables of older releases.
_OLD_DEFAULT_PARTITION: Final = "default"


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
        >>> from lakefmt._core.keys import plan_key_spec
        >>> rows = pa.table({"id": [1], "day": ["2016-12-29"]})
        >>> spec = plan_key_spec("id", "day", hive_style=False, url_encode=False)
        >>> compare_stored_rows(spec, rows, pa.array(["1"]), "2016/12/29").difference
        "a row is stored in the partition '2016/12/29', and its columns (day) give '2016-12-29'"
    """
    forms = [spec.consistent_logical_timestamps]
    if spec.has_times(rows.schema):
        forms.append(not spec.consistent_logical_timestamps)
    differences = [
        _key_and_path_differences(replace(spec, consistent_logical_timestamps=form), rows, keys, path) for form in forms
    ]
    fitting = [form for form, found in zip(forms, differences, strict=True) if not any(found[:2])]
    if not fitting:
        # The form in which less differs.
        of_keys, of_path, moved = min(differences, key=lambda each: sum(map(bool, each[:2])))
        fits = not all(path_differs for _, path_differs, _ in differences)
        return StoredRule(difference=of_keys or of_path, path_fits=fits, may_have_moved=moved and not of_keys)
    path_fits = any(not found[2] for found in differences)
    return StoredRule(fitting[0] if len(fitting) < len(forms) else None, path_fits=path_fits)


def _key_and_path_differences(spec: KeySpec, rows: pa.Table, keys: pa.Array | None, path: str) -> tuple[str, str, bool]:
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
    same = pc.or_(
        pc.equal(paths, path), pc.equal(pc.replace_substring(paths, DEFAULT_PARTITION, _OLD_DEFAULT_PARTITION), path)
    )
    others = pc.invert(same).true_count
    if others < len(paths):
        return "", others > 0
    fields = ", ".join(field.name for field in spec.partition_fields)
    first = paths[0].as_py()
    difference = f"a row is stored in the partition {path!r:.200}, and its columns ({fields}) give {first!r:.200}"
    return difference, _names_in_path(path) == _names_in_path(first)


def _names_in_path(path: str) -> list[str]:
    """Return what the parts of a path have in common with those of other values: their number, and names of columns."""
    return [part.partition("=")[0] if "=" in part else "" for part in path.split("/")]
