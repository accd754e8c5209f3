"""A registry of schemas, asked by plain HTTP as Confluent's protocol has it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final

from lakefmt._core.arguments import shown
from lakefmt.errors import FormatError, InvalidInputError, SourceUnavailable

__all__ = ["SchemaRegistry"]

_MOST_BYTES: Final = 4 << 20
_SECONDS: Final = 20.0


class SchemaRegistry:
    """Schemas of Avro by their ids; what was asked once is kept, for an id never means another schema."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Describe a registry; nothing is asked yet.

        Args:
            url: up to where ``/schemas/ids/…`` follows.
            headers: sent with each question, such as the authorization; never shown.
        """
        if not url.startswith(("http://", "https://")) or "@" in url.split("/")[2]:
            raise InvalidInputError("the URL of a registry begins with http:// or https:// and has no password")
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._opener = urllib.request.build_opener(_NoRedirect())
        self._schemas: dict[int, Any] = {}

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url!r})"

    def schema(self, number: int) -> Any:
        """Return a schema.

        Raises:
            FormatError: the registry has no such schema, or answers with something else.
            SourceUnavailable: it does not answer.
        """
        if number not in self._schemas:
            self._schemas[number] = self._ask(number)
        return self._schemas[number]

    def _ask(self, number: int) -> Any:
        request = urllib.request.Request(f"{self._url}/schemas/ids/{number}", headers=self._headers)  # noqa: S310  (checked)
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                body = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise FormatError(f"the registry {shown(self._url)} has no schema {number}") from error
            raise SourceUnavailable(
                f"the registry {shown(self._url)} answers {error.code} for schema {number}"
            ) from error
        except (OSError, HTTPException) as error:
            raise SourceUnavailable(f"the registry {shown(self._url)} cannot be asked: {error}") from error
        if len(body) > _MOST_BYTES:
            raise FormatError(f"schema {number} of the registry is larger than {_MOST_BYTES} bytes")
        try:
            found = json.loads(body)
            if found.get("references") or found.get("schemaType", "AVRO") != "AVRO":
                raise FormatError(f"schema {number} of the registry rests on others, or is none of Avro")
            return json.loads(found["schema"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"schema {number} of the registry cannot be read: {error}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A registry that sends elsewhere is not followed: headers with secrets would go along."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
