r"""Encode and decode properties files (docs/format.md, Properties files; Table checksum).

The decoder accepts everything that ``java.util.Properties`` accepts, except two signs of a damaged
file: a raw NUL byte (Java writes ``\u0000``) and an unpaired surrogate.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = [
    "check_table_checksum",
    "decode_properties",
    "encode_properties",
    "properties_comment_date",
    "table_checksum",
]

CHECKSUM_KEY = "hoodie.table.checksum"
_DATABASE_KEY = "hoodie.database.name"
_NAME_KEY = "hoodie.table.name"

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY_END = re.compile(r"[=: \t\f\\]")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]")

_CONTROLS = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_VALUE_ESCAPES = str.maketrans(
    {"\\": "\\\\", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!", "\t": "\\t", "\r": "\\r", "\n": "\\n", "\f": "\\f"}
)
_KEY_ESCAPES = {**_VALUE_ESCAPES, ord(" "): "\\ "}

# Java prints these names in every locale.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def decode_properties(data: bytes, what: str = "properties") -> dict[str, str]:
    r"""Return keys and values in the order of the file; the last of equal keys wins.

    Parameters:
        data: the whole file.
        what: the file's name in errors.

    Raises:
        CorruptFile: a malformed ``\u`` escape, an unpaired surrogate or a raw NUL byte.

    Source: docs/format.md, Properties files.

    Example:
        >>> decode_properties(b"# note\nhoodie.table.name = trips\npath\\=x: a\\\n   b\n")
        {'hoodie.table.name': 'trips', 'path=x': 'ab'}
    """
    if b"\0" in data:
        raise CorruptFile(f"{what}: NUL byte at offset {data.index(0)}: the file was not written to its end")
    return dict(_split(line, what) for line in _logical_lines(data.decode("latin-1")))


def encode_properties(values: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    r"""Return properties text: one comment line per line of `comments`, then one line per value, in order.

    Raises:
        InvalidInputError: a text has an unpaired surrogate.

    Source: docs/format.md, Properties files.

    Example:
        >>> encode_properties({"commitTime": "20260101000000000", "partitionDepth": "1"}, ["partition metadata"])
        b'#partition metadata\ncommitTime=20260101000000000\npartitionDepth=1\n'
    """
    lines = [f"#{_ascii(line)}" for comment in comments for line in _LINE_END.split(comment)]
    lines += [f"{_escape_key(key)}={_escape_value(value)}" for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def table_checksum(database: str | None, name: str) -> str:
    """Return the value of ``hoodie.table.checksum``: the CRC-32 of ``database.name`` as decimal text.

    Source: docs/format.md, Table checksum.

    Example:
        >>> table_checksum("default", "trips"), table_checksum(None, "t")
        ('2200697520', '498511606')
    """
    # Names from this module have no unpaired surrogates; other names still get a checksum.
    return str(zlib.crc32(f"{database or ''}.{name}".encode("utf-8", "replace")))


def check_table_checksum(props: Mapping[str, str]) -> bool:
    """Return whether the checksum of `props` is right or absent; False means damaged or truncated.

    Source: docs/format.md, Table checksum.

    Example:
        >>> check_table_checksum({"hoodie.table.name": "t", "hoodie.table.checksum": "498511606"})
        True
    """
    stored = props.get(CHECKSUM_KEY)
    return stored is None or stored.strip() == table_checksum(props.get(_DATABASE_KEY), props.get(_NAME_KEY, ""))


def properties_comment_date(moment: datetime) -> str:
    """Return `moment` as ``java.util.Date`` prints it in UTC, for the date comment.

    Raises:
        InvalidInputError: `moment` has no time zone.

    Source: docs/format.md, Properties files.

    Example:
        >>> properties_comment_date(datetime(2025, 10, 24, 20, 50, 36, tzinfo=UTC))
        'Fri Oct 24 20:50:36 UTC 2025'
    """
    if moment.tzinfo is None:
        raise InvalidInputError(f"{moment!r} has no time zone")
    utc = moment.astimezone(UTC)
    return f"{_DAYS[utc.weekday()]} {_MONTHS[utc.month - 1]} {utc.day:02d} {utc:%H:%M:%S} UTC {utc.year:04d}"


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the logical lines: continuation lines joined, comments and blank lines dropped."""
    parts: list[str] = []
    for natural in _natural_lines(text):
        line = natural.lstrip(_BLANK)
        # After only continuation marks this is still a new line for Java, so it may be a comment.
        if not parts and (not line or line[0] in "#!"):
            continue
        if not _continues(line):
            yield "".join([*parts, line])
            parts.clear()
        elif len(line) > 1:
            parts.append(line[:-1])
    if parts:
        yield "".join(parts)


def _natural_lines(text: str) -> Iterator[str]:
    position = 0
    for end in _LINE_END.finditer(text):
        yield text[position : end.start()]
        position = end.end()
    yield text[position:]


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str, what: str) -> tuple[str, str]:
    """Return key and value of a logical line."""
    end = _key_end(line)
    separator = _SEPARATOR.match(line, end)
    start = separator.end() if separator else end
    return _unescape(line[:end], what), _unescape(line[start:], what)


def _key_end(line: str) -> int:
    """Return the end of the key: the first unescaped separator."""
    position = 0
    while match := _KEY_END.search(line, position):
        if line[match.start()] != "\\":
            return match.start()
        position = match.end() + 1
    return len(line)


def _unescape(text: str, what: str) -> str:
    if "\\" not in text:
        return text
    try:
        plain = _ESCAPE.sub(_escaped_character, text)
        # Characters beyond the basic plane are two escapes for one character.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if _SURROGATE.search(plain) else plain
    except ValueError as error:
        raise CorruptFile(f"{what}: malformed escape in {text[:60]!r}: {error}") from None


def _escaped_character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape == "u":
        raise ValueError(f"\\u at character {match.start()} needs four hexadecimal digits")
    return chr(int(escape[1:], 16)) if len(escape) == 5 else _CONTROLS.get(escape, escape)


def _escape_key(key: str) -> str:
    return _ascii(key.translate(_KEY_ESCAPES))


def _escape_value(value: str) -> str:
    escaped = _ascii(value.translate(_VALUE_ESCAPES))
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _ascii(text: str) -> str:
    """Return `text` with UTF-16 escapes for everything outside of printable ASCII."""
    return text if text.isascii() and text.isprintable() else _NOT_PRINTABLE.sub(_utf16_escape, text)


def _utf16_escape(match: re.Match[str]) -> str:
    try:
        units = match[0].encode("utf-16-be")
    except UnicodeEncodeError:
        raise InvalidInputError(f"half a surrogate pair {match[0]!r} cannot be stored") from None
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
