"""How keys begin that are looked for in HFiles. Pure."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import distinct

__all__ = ["Prefixes"]


class Prefixes:
    """How the keys that are looked for begin.

    Parameters:
        texts: binary; nulls are not looked for, an empty one is the beginning of every key.

    Attributes:
        texts: distinct, without nulls.
    """

    def __init__(self, texts: pa.Array) -> None:
        self.texts: pa.BinaryArray = pc.unique(texts.cast(pa.binary())).drop_null()

    @cached_property
    def by_length(self) -> dict[int, pa.BinaryArray]:
        """The texts by their length in bytes."""
        lengths = pc.binary_length(self.texts)
        return {int(length): self.texts.filter(pc.equal(lengths, length)) for length in distinct(lengths.to_numpy())}

    @cached_property
    def heads(self) -> tuple[bytes, ...]:
        """The texts one by one."""
        return tuple(self.texts.to_pylist())
