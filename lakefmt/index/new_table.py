"""The index of a new table, and the properties that tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakefmt.config.settings import Settings
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.index.api import INDEX_TYPE, RECORD_INDEX_NAMES
from lakefmt.index.registry import open_index
from lakefmt.keys import KeySpec
from lakefmt.values import TableType, TableVersion

__all__ = ["index_of_new_table"]


def index_of_new_table(
    index: str,
    properties: Mapping[str, str],
    settings: Settings,
    spec: KeySpec,
    kind: TableType,
    version: TableVersion,
) -> tuple[str, Mapping[str, str]]:
    """Return the index of the table, and its properties with those of the index.

    Args:
        index: the argument; where it is the default, ``hoodie.index.type`` among the properties names the index, and so
            does ``BUCKET`` among the options.
        properties: what the caller asks for.
        settings: those of the call, which may name the buckets, too.
        spec: the table's keys.
        kind: the table's type.
        version: the table's.

    Raises:
        UnknownSetting: there is no such index.
        UnsupportedFeature: the table cannot have it.

    Example:
        >>> from lakefmt.config.settings import resolve_settings
        >>> from lakefmt.keys import plan_key_spec
        >>> spec, kind = plan_key_spec("id", None), TableType.COPY_ON_WRITE
        >>> index_of_new_table("RECORD_INDEX", {}, resolve_settings({}), spec, kind, TableVersion.EIGHT)
        ('record', {})
    """
    # Another index that the options name is that of the handle: a table may be written with one after the other.
    by_options = str(settings.values[INDEX_TYPE]) if settings.is_asked(INDEX_TYPE) else ""
    named = properties.get(INDEX_TYPE, by_options if by_options.lower() == "bucket" else None)
    if named is not None and index.lower() not in ("bloom", named.lower()):
        raise InvalidInputError(f"hoodie.index.type={named} contradicts index={index!r}")
    index = named or index
    has_meta_fields = properties.get("hoodie.populate.meta.fields", "true").lower() == "true"
    record = _record_index_name(index, spec.record_key_fields, version, has_meta_fields=has_meta_fields)
    if record is not None:
        return record, properties
    open_index(index)
    if index.lower() == "bucket":
        from lakefmt.index.bucket.settings import asked_bucket_properties, bucket_properties

        asked = {key: text for key, text in asked_bucket_properties(settings).items() if key != INDEX_TYPE}
        return "bucket", {**properties, **bucket_properties({**asked, **properties}, spec.record_key_fields, kind)}
    if index.lower() == "global_bloom" and not has_meta_fields:
        raise UnsupportedFeature("files without meta columns have no filters: use index='global_simple'")
    return index, properties


def _record_index_name(
    name: str, key_fields: Sequence[str], version: TableVersion, *, has_meta_fields: bool
) -> str | None:
    """Return lakefmt's name of a record index that a new table is to have; None: `name` is another index.

    Raises:
        UnsupportedFeature: the table cannot have it.
    """
    is_global = RECORD_INDEX_NAMES.get(name.lower())
    if is_global is None:
        return None
    if not key_fields:
        raise UnsupportedFeature("a record index needs a record key: generated keys are never looked up")
    if not has_meta_fields:
        raise UnsupportedFeature("a record index needs files that store keys: use index='global_simple'")
    if not is_global and version is not TableVersion.NINE:
        raise UnsupportedFeature(
            f"a record index by partition needs table_version=9: Hudi 1.0 reads tables of version {version.value} and "
            "would look into wrong file groups; use index='record'"
        )
    return "record" if is_global else "partitioned_record"
