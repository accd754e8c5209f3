"""Callbacks after a commit: a function of the caller, or Hudi's HTTP callback. A failing one never undoes the commit."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.values import CommitResult
from lakefmt._core.write.context import OnCommit, WriteRequest

__all__ = ["CALLBACK_ON", "SECRET_OPTIONS", "notify", "notify_callbacks"]

#: The setting that switches Hudi's HTTP callback on.
CALLBACK_ON = "hoodie.write.commit.callback.on"
_URL = "hoodie.write.commit.callback.http.url"
_TIMEOUT = "hoodie.write.commit.callback.http.timeout.seconds"
_KEY = "hoodie.write.commit.callback.http.api.key"

#: Options that never travel with a write's context.
SECRET_OPTIONS = frozenset({_KEY})


def notify_callbacks(
    client: TableClient, result: CommitResult, request: WriteRequest, observer: OnCommit | None
) -> CommitResult:
    """Call the callbacks of a commit; return the result with a warning for each that failed."""
    if result.instant is None:
        return result
    failures = notify(client, result, {**client.options, **request.options}, observer)
    return replace(result, warnings=(*result.warnings, *failures)) if failures else result


def notify(
    client: TableClient,
    result: CommitResult,
    options: Mapping[str, object],
    observer: OnCommit | None,
) -> tuple[str, ...]:
    """Call the observers of a commit; return a sentence for each that failed, without secrets."""
    failures = []
    if observer is not None:
        try:
            observer(result)
        except Exception as error:  # noqa: BLE001 - the commit stands whatever its observer does
            failures.append(f"on_commit failed: {type(error).__name__}: {error}")
    if str(options.get(CALLBACK_ON, "false")).lower() == "true":
        try:
            problem = _post(client, result, options)
        except Exception as error:  # noqa: BLE001 - the same
            problem = f"the commit callback failed: {type(error).__name__}: {error}"
        if problem:
            failures.append(problem)
    return tuple(failures)


def _post(client: TableClient, result: CommitResult, options: Mapping[str, object]) -> str | None:
    import urllib.error
    import urllib.request  # brings half the library along, and few commits have a callback

    url = str(options.get(_URL, ""))
    if not url.startswith(("http://", "https://")):
        return f"the commit callback was not called: {_URL} is no http address"
    message = {
        "commitTime": result.instant,
        "tableName": client.load_config().name,
        "basePath": client.store.url,
        "commitActionType": result.action,
    }
    headers = {"Content-Type": "application/json", "HUDI-CALLBACK-KEY": str(options.get(_KEY, "hudi_write_commit"))}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers, method="POST")  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=float(str(options.get(_TIMEOUT, 5)))):  # noqa: S310 - checked
            return None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else type(error).__name__
        return f"the commit callback failed: {reason}"
