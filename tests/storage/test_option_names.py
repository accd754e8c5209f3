"""Storage options under the names of deltalake, Polars and object_store mean what they mean there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.storage.remote_clients import with_driver_names
from lakefmt.errors import InvalidInputError

S3 = {
    "AWS_ACCESS_KEY_ID": "k",
    "aws_secret_access_key": "s",
    "AWS_SESSION_TOKEN": "t",
    "AWS_REGION": "eu-west-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
    "AWS_ALLOW_HTTP": "true",
    "aws_conditional_put": "etag",
}


@pytest.mark.parametrize(
    ("protocol", "given_options", "named"),
    [
        (
            "s3",
            S3,
            {
                "key": "k",
                "secret": "s",
                "token": "t",
                "endpoint_url": "http://127.0.0.1:9000",
                "client_kwargs": {"region_name": "eu-west-1"},
            },
        ),
        ("s3a", {"skip_signature": "true"}, {"anon": True}),
        (
            "s3",
            {"aws_virtual_hosted_style_request": "false", "client_kwargs": {"verify": False}, "region": "auto"},
            {
                "client_kwargs": {"verify": False, "region_name": "auto"},
                "config_kwargs": {"s3": {"addressing_style": "path"}},
            },
        ),
        ("gs", {"google_service_account": "/key.json"}, {"token": "/key.json"}),
        ("gcs", {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"a": 1}'}, {"token": {"a": 1}}),
        ("gs", {"google_skip_signature": True}, {"token": "anon"}),
        (
            "abfss",
            {"AZURE_STORAGE_ACCOUNT_NAME": "n", "azure_storage_access_key": "k"},
            {"account_name": "n", "account_key": "k"},
        ),
        (
            "az",
            {"account_name": "n", "sas_token": "s", "azure_endpoint": "http://127.0.0.1:10000/n"},
            {"connection_string": "AccountName=n;SharedAccessSignature=s;BlobEndpoint=http://127.0.0.1:10000/n"},
        ),
        ("https", {"region": "x"}, {"region": "x"}),
    ],
)
def test_a_name_becomes_the_drivers(protocol: str, given_options: dict[str, object], named: dict[str, object]) -> None:
    assert with_driver_names(protocol, given_options) == named


@given(st.sampled_from(["s3", "gs", "abfss", "memory"]), st.dictionaries(st.text(max_size=9), st.text(max_size=5)))
def test_law_other_names_and_all_values_stay(protocol: str, options: dict[str, str]) -> None:
    drivers = {"key", "secret", "token", "account_name", "region", "endpoint"}
    options = {name: value for name, value in options.items() if name.lower() not in drivers}
    assert with_driver_names(protocol, options) == options


def test_two_names_of_one_option_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'key' and 'aws_access_key_id', which mean the same"):
        with_driver_names("s3", {"key": "a", "aws_access_key_id": "b"})


def test_an_endpoint_of_azure_needs_an_account() -> None:
    with pytest.raises(InvalidInputError, match="name and its key"):
        with_driver_names("az", {"endpoint": "http://x"})


def test_a_key_that_is_no_json_is_not_shown() -> None:
    with pytest.raises(InvalidInputError) as raised:
        with_driver_names("gs", {"service_account_key": "{secret"})
    assert "secret" not in str(raised.value)
