"""Options under the SDK's names."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from lakefmt.errors import InvalidInputError
from lakefmt.realtime import (
    CZSessionOptions,
    ErrorTypeHandler,
    FlushMode,
    ProtocolType,
    RealtimeOptionsBuilder,
    RetryMode,
    RetryStatus,
)

GUIDE = frozenset({RetryStatus.THROTTLED, RetryStatus.INTERNAL_ERROR, RetryStatus.FAILED, RetryStatus.PRECHECK_FAILED})


def test_every_call_of_the_guide_in_its_order() -> None:
    options = (
        RealtimeOptionsBuilder()
        .with_flush_mode(FlushMode.AUTO_FLUSH_SYNC)
        .with_flush_interval(7_000)
        .with_mutation_buffer_lines_num(50_000)
        .with_mutation_buffer_space(20 * 1024 * 1024)
        .with_mutation_buffer_max_num(51)
        .with_error_type_handler(ErrorTypeHandler.IGNORE)
        .with_request_failed_retry_enable(True)
        .with_request_failed_retry_mode(RetryMode.ROW_REQUEST_MODE)
        .with_request_failed_retry_times(4)
        .with_request_failed_retry_internal_ms(2_000)
        .with_request_failed_retry_log_debug_enable(False)
        .with_request_failed_retry_status([RetryStatus.THROTTLED])
        .with_protocol_type(ProtocolType.V2)
        .with_grpc_max_message_length(30 * 1024 * 1024)
        .with_tablet_idle_recreate_support(False)
        .with_tablet_idle_status({RetryStatus.STREAM_UNAVAILABLE})
        .with_properties({"arrow.row.format.check": "false"})
        .build()
    )
    expected = {
        "flush_mode": FlushMode.AUTO_FLUSH_SYNC,
        "flush_interval": 7_000,
        "mutation_buffer_lines_num": 50_000,
        "mutation_buffer_space": 20 * 1024 * 1024,
        "mutation_buffer_max_num": 51,
        "error_type_handler": ErrorTypeHandler.IGNORE,
        "request_failed_retry_enable": True,
        "request_failed_retry_mode": RetryMode.ROW_REQUEST_MODE,
        "request_failed_retry_times": 4,
        "request_failed_retry_internal_ms": 2_000,
        "request_failed_retry_log_debug_enable": False,
        "request_failed_retry_register_status": {RetryStatus.THROTTLED},
        "protocol_type": ProtocolType.V2,
        "grpc_max_message_length": 30 * 1024 * 1024,
        "properties": {"arrow.row.format.check": "false"},
    }
    stated = options.to_dict()
    for name, value in expected.items():
        assert getattr(options, name) == value, name
        assert stated[name] == value, name


def test_the_defaults_are_those_of_the_guide() -> None:
    options = RealtimeOptionsBuilder().build()
    assert options == CZSessionOptions.default()
    assert options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND is CZSessionOptions.DEFAULT_FLUSH_MODE
    assert options.flush_interval == 10_000 == CZSessionOptions.DEFAULT_MUTATION_FLUSH_INTERVAL
    assert options.mutation_buffer_lines_num == 1_000 == CZSessionOptions.DEFAULT_MUTATION_LINES_NUM
    assert options.mutation_buffer_space == 10 * 1024 * 1024 == CZSessionOptions.DEFAULT_MUTATION_BUFFER_SIZE
    assert options.mutation_buffer_max_num == 50 == CZSessionOptions.DEFAULT_MUTATION_BUFFER_MAX_NUM
    assert options.max_buffered_bytes == 256 * 1024 * 1024
    assert options.request_failed_retry_times == 5
    assert options.request_failed_retry_internal_ms == 5_000
    assert options.request_failed_retry_status == GUIDE


def test_options_never_change_and_a_builder_goes_on() -> None:
    builder = RealtimeOptionsBuilder().with_flush_interval(1)
    first = builder.build()
    second = builder.with_flush_interval(2).build()
    assert (first.flush_interval, second.flush_interval) == (1, 2)
    with pytest.raises(FrozenInstanceError):
        first.flush_interval = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        first.properties["a"] = 1  # type: ignore[index]
    given = {"hoodie.upsert.shuffle.parallelism": "2"}
    third = RealtimeOptionsBuilder().with_properties(given).build()
    given["other"] = "3"
    assert dict(third.properties) == {"hoodie.upsert.shuffle.parallelism": "2"}


def test_one_error_names_every_invalid_option() -> None:
    builder = (
        RealtimeOptionsBuilder()
        .with_mutation_buffer_lines_num(0)
        .with_mutation_buffer_space(-1)
        .with_mutation_buffer_max_num(0)
        .with_flush_interval(-1)
        .with_request_failed_retry_times(0)
        .with_request_failed_retry_internal_ms(0)
        .with_flush_mode("fast")  # type: ignore[arg-type]
    )
    with pytest.raises(ValueError, match="mutation_buffer_lines_num") as caught:
        builder.build()
    for name in (
        "mutation_buffer_space",
        "mutation_buffer_max_num",
        "flush_interval",
        "request_failed_retry_times",
        "request_failed_retry_interval_ms",
        "flush_mode",
    ):
        assert name in str(caught.value)


def test_a_buffer_must_fit_into_a_message() -> None:
    with pytest.raises(ValueError, match="grpc_max_message_length"):
        RealtimeOptionsBuilder().with_mutation_buffer_space(26 * 1024 * 1024).build()
    # In either order of the calls.
    options = (
        RealtimeOptionsBuilder()
        .with_mutation_buffer_space(26 * 1024 * 1024)
        .with_grpc_max_message_length(27 * 1024 * 1024)
        .build()
    )
    assert options.mutation_buffer_space == 26 * 1024 * 1024


@pytest.mark.parametrize(
    "given",
    [
        (RetryStatus.THROTTLED, RetryStatus.FAILED),
        ([RetryStatus.THROTTLED, RetryStatus.FAILED],),
        ((RetryStatus.THROTTLED, RetryStatus.FAILED),),
        ({RetryStatus.THROTTLED, RetryStatus.FAILED},),
        (iter([RetryStatus.THROTTLED, RetryStatus.FAILED]),),
        ([RetryStatus.THROTTLED], RetryStatus.FAILED),
    ],
)
def test_statuses_replace_the_set(given: tuple[object, ...]) -> None:
    builder = RealtimeOptionsBuilder().with_request_failed_retry_status(RetryStatus.NOT_FOUND)
    options = builder.with_request_failed_retry_status(*given).build()  # type: ignore[arg-type]
    assert options.request_failed_retry_status == {RetryStatus.THROTTLED, RetryStatus.FAILED}
    assert RealtimeOptionsBuilder().build().request_failed_retry_status == GUIDE, "nothing is shared"


def test_one_status() -> None:
    options = RealtimeOptionsBuilder().with_request_failed_retry_status(RetryStatus.THROTTLED).build()
    assert options.request_failed_retry_status == {RetryStatus.THROTTLED}


@pytest.mark.parametrize("given", ["THROTTLED", 1, [1], [None]])
def test_only_statuses_are_taken(given: object) -> None:
    with pytest.raises(ValueError, match="RetryStatus"):
        RealtimeOptionsBuilder().with_request_failed_retry_status(given).build()  # type: ignore[arg-type]


def test_the_interval_has_two_names() -> None:
    for builder in (
        RealtimeOptionsBuilder().with_request_failed_retry_internal_ms(9),
        RealtimeOptionsBuilder().with_request_failed_retry_internal_ms(retry_interval_ms=9),
        RealtimeOptionsBuilder().with_retry_interval_ms(9),
    ):
        assert builder.build().request_failed_retry_internal_ms == 9
    with pytest.raises(InvalidInputError, match="either"):
        RealtimeOptionsBuilder().with_request_failed_retry_internal_ms()


def test_options_of_lakefmt_are_set_like_the_others() -> None:
    options = (
        RealtimeOptionsBuilder()
        .with_max_buffered_bytes(1 << 20)
        .with_apply_timeout(5)
        .with_commit_interval(0)
        .with_commit_bytes(7)
        .with_dead_letter_path("dead")
        .build()
    )
    assert options.max_buffered_bytes == 1 << 20
    assert options.apply_timeout == 5
    assert options.commit_interval == 0
    assert options.commit_bytes == 7
    assert options.dead_letter_path == "dead"
