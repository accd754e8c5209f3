"""File ids of tables that keep the order of rows in a bucket (docs/append.md, File ids).

Such an id looks like a UUID of version 8, which no Hudi writer makes: ``b`` and seven digits of the bucket's number, then
the requested time of the commit whose rows come first, and six random digits; behind the last ``-`` the file's number
in its commit. Hudi's own bucket numbers are eight digits, so Hudi does not take these for buckets of its index.
"""

from __future__ import annotations

import re

from lakefmt.errors import InvalidInputError
from lakefmt.values import FileId, InstantTime

__all__ = ["MOST_BUCKETS", "queue_bucket_of", "queue_file_id", "queue_position_of"]

#: A bucket's number has seven digits.
MOST_BUCKETS = 10_000_000

_QUEUE = re.compile(r"b(\d{7})-(\d{4})-8(\d{3})-(\d{4})-(\d{6})[0-9a-f]{6}-(\d{1,9})", re.ASCII)


def queue_file_id(bucket: int, first: InstantTime, random_digits: str, number: int) -> FileId:
    """Return the id of a file group of a bucket.

    Args:
        bucket: its number.
        first: requested time of the commit whose rows come first in it.
        random_digits: six hexadecimal digits, which tell it from others of the bucket and the commit.
        number: the file's number in its commit: of one bucket the smaller number comes first.

    Raises:
        InvalidInputError: the bucket has no seven digits, or the time no seventeen.

    Example:
        >>> queue_file_id(3, "20260102030405678", "abcdef", 0)
        'b0000003-2026-8010-2030-405678abcdef-0'
    """
    if not 0 <= bucket < MOST_BUCKETS or len(first) != 17:
        raise InvalidInputError(f"no file id has the bucket {bucket} and the instant {first}")
    return FileId(f"b{bucket:07d}-{first[:4]}-8{first[4:7]}-{first[7:11]}-{first[11:]}{random_digits[:6]}-{number}")


def queue_bucket_of(file_id: str) -> int | None:
    """Return the bucket of a file group; None: its id names none.

    Example:
        >>> queue_bucket_of("b0000003-2026-8010-2030-405678abcdef-0"), queue_bucket_of("1a2b3c4d-1a2b-4c3d-8e9f-0-0")
        (3, None)
    """
    match = _QUEUE.fullmatch(file_id)
    return None if match is None else int(match[1])


def queue_position_of(file_id: str) -> tuple[InstantTime, int] | None:
    """Return the commit whose rows come first in a file group, and the file's number; None: its id names no bucket.

    Example:
        >>> queue_position_of("b0000003-2026-8010-2030-405678abcdef-4")
        ('20260102030405678', 4)
    """
    match = _QUEUE.fullmatch(file_id)
    return None if match is None else (InstantTime("".join(match.group(2, 3, 4, 5))), int(match[6]))
