"""Names in ``storage_options``: those of deltalake, Polars and object_store become those of fsspec's drivers; others are checked.

Values are neither read nor shown when names are checked.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from lakefmt.errors import InvalidInputError

__all__ = [
    "check_options",
    "misspelt",
    "unknown_option",
    "with_driver_names",
]

#: A driver's option, and how its value is made of a text.
_Target = tuple[str, Callable[[object], object]]


def _same(value: object) -> object:
    return value


def _flag(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes", "on", "y", "t")


def _json(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidInputError("storage_options: the key of the service account is no JSON") from None


def _each(names: str, target: str, convert: Callable[[object], object] = _same) -> dict[str, _Target]:
    return dict.fromkeys(names.split(), (target, convert))


#: Names without effect here: conditional puts are always asked for, and the scheme of the endpoint says whether it is http.
_INERT: Final = "-"

_S3: Final[dict[str, _Target]] = {
    **_each("aws_access_key_id access_key_id", "key"),
    **_each("aws_secret_access_key secret_access_key", "secret"),
    **_each("aws_session_token session_token aws_token", "token"),
    **_each("aws_region aws_default_region region default_region region_name", "region_name"),
    **_each("aws_endpoint aws_endpoint_url aws_endpoint_url_s3 endpoint endpoint_url", "endpoint_url"),
    **_each("aws_skip_signature skip_signature", "anon", _flag),
    **_each("aws_profile", "profile"),
    **_each("aws_virtual_hosted_style_request virtual_hosted_style_request", "virtual_hosted", _flag),
    **_each("aws_allow_http allow_http aws_conditional_put conditional_put aws_s3_allow_unsafe_rename", _INERT),
}
_GCS: Final[dict[str, _Target]] = {
    **_each("google_service_account google_service_account_path service_account service_account_path", "token"),
    **_each("google_application_credentials application_credentials", "token"),
    **_each("google_service_account_key service_account_key", "token", _json),
    **_each("google_skip_signature skip_signature", "anon", _flag),
    **_each("google_base_url", "endpoint_url"),
    **_each("allow_http", _INERT),
}
_AZURE: Final[dict[str, _Target]] = {
    **_each("azure_storage_account_name", "account_name"),
    **_each(
        "azure_storage_account_key azure_storage_access_key azure_storage_master_key access_key master_key",
        "account_key",
    ),
    **_each("azure_storage_client_id azure_client_id", "client_id"),
    **_each("azure_storage_client_secret azure_client_secret", "client_secret"),
    **_each(
        "azure_storage_tenant_id azure_storage_authority_id azure_tenant_id azure_authority_id authority_id",
        "tenant_id",
    ),
    **_each("azure_storage_sas_token azure_storage_sas_key sas_key", "sas_token"),
    **_each("azure_storage_connection_string", "connection_string"),
    **_each("azure_storage_endpoint azure_endpoint endpoint", "endpoint"),
    **_each("azure_skip_signature skip_signature", "anon", _flag),
    **_each("azure_allow_http allow_http", _INERT),
}
_BY_PROTOCOL: Final = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "az"), _AZURE),
}


def with_driver_names(protocol: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return storage options under the names of the protocol's driver; names that it does not translate stay.

    Args:
        protocol: of the URL.
        options: as the caller gave them; of object_store's names upper and lower case mean the same.

    Raises:
        InvalidInputError: one option was given under two names, or the key of a service account is no JSON.

    Example:
        >>> with_driver_names("s3", {"AWS_ACCESS_KEY_ID": "k", "aws_region": "eu-west-1"})
        {'key': 'k', 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    names = _BY_PROTOCOL.get(protocol, {})
    driver_options: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, value in options.items():
        target, convert = names.get(str(name).lower(), (name, _same))
        if target == _INERT:
            continue
        if target in origins:
            raise InvalidInputError(f"storage_options has {origins[target]!r} and {name!r}, which mean the same")
        origins[target] = name
        driver_options[target] = convert(value)
    if names is _S3:
        return _with_client_settings(driver_options)
    if names is _GCS and driver_options.pop("anon", False):
        driver_options.setdefault("token", "anon")
    return _with_connection_string(driver_options) if names is _AZURE else driver_options


def _with_client_settings(driver_options: dict[str, object]) -> dict[str, object]:
    """Move what s3fs takes in dictionaries for its client there."""
    region, virtual = driver_options.pop("region_name", None), driver_options.pop("virtual_hosted", None)
    if region is not None:
        settings = driver_options.get("client_kwargs")
        driver_options["client_kwargs"] = {**(settings if isinstance(settings, Mapping) else {}), "region_name": region}
    if virtual is not None:
        settings = driver_options.get("config_kwargs")
        style = {"addressing_style": "virtual" if virtual else "path"}
        driver_options["config_kwargs"] = {**(settings if isinstance(settings, Mapping) else {}), "s3": style}
    return driver_options


def _with_connection_string(driver_options: dict[str, object]) -> dict[str, object]:
    """Turn an endpoint into a connection string: adlfs has no option for it."""
    endpoint = driver_options.pop("endpoint", None)
    if endpoint is None:
        return driver_options
    account, key, token = (driver_options.pop(name, None) for name in ("account_name", "account_key", "sas_token"))
    secret = f"AccountKey={key}" if key is not None else f"SharedAccessSignature={token}"
    if account is None or (key is None and token is None):
        raise InvalidInputError(
            "storage_options: an endpoint of Azure needs the account's name and its key or SAS token"
        )
    driver_options["connection_string"] = f"AccountName={account};{secret};BlobEndpoint={endpoint}"
    return driver_options


#: Options of every fsspec driver, though no signature has them.
_COMMON: Final = frozenset({"listings_expiry_time", "max_paths", "skip_instance_cache", "use_listings_cache"})
#: Drivers that ignore unknown names, or fail at the first request.
_STRICT: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '([^']+)'")
_MAX_DEPTH: Final = 4


def check_options(driver: type, protocol: str, options: Mapping[str, object]) -> None:
    """Raise for option names that a driver does not accept.

    Args:
        driver: the file system class.
        protocol: of the URL.
        options: the storage options.

    Raises:
        InvalidInputError: a name is not a text, or the driver does not know it.
    """
    names: list[object] = list(options)
    strange = next((name for name in names if not isinstance(name, str)), None)
    if strange is not None:
        raise InvalidInputError(f"storage_options has the name {strange!r}: names are texts")
    if protocol not in _STRICT or options.get("session") is not None:
        return
    accepted = _names_of(driver) | _COMMON | (_session_names() if protocol.startswith("s3") else frozenset())
    unknown = next((name for name in options if name not in accepted), None)
    if unknown is not None:
        raise unknown_option(unknown, accepted, protocol)


def unknown_option(name: str, accepted: frozenset[str], protocol: str) -> InvalidInputError:
    """Return the error for an unknown option, with the most similar known name."""
    close = difflib.get_close_matches(name, sorted(accepted), n=1)
    hint = f": did you mean {close[0]!r}?" if close else ""
    return InvalidInputError(f"storage_options has {name!r}, which the driver of {protocol}:// does not know{hint}")


def _session_names() -> frozenset[str]:
    """Return the options that s3fs passes to its session, such as a profile."""
    return _names_of(importlib.import_module("botocore.session").Session)


def _names_of(client_class: type) -> frozenset[str]:
    names: set[str] = set()
    for each in client_class.__mro__:
        if "__init__" in vars(each):
            parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
            names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return frozenset(names - {"self"})


def misspelt(error: BaseException, options: Mapping[str, object]) -> str | None:
    """Return the option, nested or not, that a client library rejected; None for other errors.

    Example:
        >>> misspelt(TypeError("f() got an unexpected keyword argument 'regon'"), {"client_kwargs": {"regon": "x"}})
        'regon'
    """
    match = _UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
    return match[1] if match is not None and _holds(options, match[1], 0) else None


def _holds(options: object, name: str, depth: int) -> bool:
    if not isinstance(options, Mapping) or depth > _MAX_DEPTH:
        return False
    return name in options or any(_holds(inner, name, depth + 1) for inner in options.values())
