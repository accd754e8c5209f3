"""Names of storage options that deltalake, Polars and object_store take, translated into those of fsspec's drivers. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from lakefmt.errors import InvalidInputError

__all__ = ["with_driver_names"]

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
    named: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, value in options.items():
        target, convert = names.get(str(name).lower(), (name, _same))
        if target == _INERT:
            continue
        if target in origins:
            raise InvalidInputError(f"storage_options has {origins[target]!r} and {name!r}, which mean the same")
        origins[target] = name
        named[target] = convert(value)
    if names is _S3:
        return _with_client_settings(named)
    if names is _GCS and named.pop("anon", False):
        named.setdefault("token", "anon")
    return _with_connection_string(named) if names is _AZURE else named


def _with_client_settings(named: dict[str, object]) -> dict[str, object]:
    """Move what s3fs takes in dictionaries for its client there."""
    region, virtual = named.pop("region_name", None), named.pop("virtual_hosted", None)
    if region is not None:
        given = named.get("client_kwargs")
        named["client_kwargs"] = {**(given if isinstance(given, Mapping) else {}), "region_name": region}
    if virtual is not None:
        given = named.get("config_kwargs")
        style = {"addressing_style": "virtual" if virtual else "path"}
        named["config_kwargs"] = {**(given if isinstance(given, Mapping) else {}), "s3": style}
    return named


def _with_connection_string(named: dict[str, object]) -> dict[str, object]:
    """Turn an endpoint into a connection string: adlfs has no option for it."""
    endpoint = named.pop("endpoint", None)
    if endpoint is None:
        return named
    account, key, token = (named.pop(name, None) for name in ("account_name", "account_key", "sas_token"))
    secret = f"AccountKey={key}" if key is not None else f"SharedAccessSignature={token}"
    if account is None or (key is None and token is None):
        raise InvalidInputError(
            "storage_options: an endpoint of Azure needs the account's name and its key or SAS token"
        )
    named["connection_string"] = f"AccountName={account};{secret};BlobEndpoint={endpoint}"
    return named
