"""Changes of any kind, found and made small by hypothesis: each decoder gives a value or a typed error, soon.

Memory is measured in `test_every_decoder.py`: tracing it here would trace hypothesis, for most of the time.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.fuzz.bounds import Meter
from tests.fuzz.damage import Edit, damaged, edits
from tests.fuzz.decoders import IDS, INPUTS, Decoder


@pytest.mark.parametrize(("decoder", "seed"), INPUTS, ids=IDS)
def test_any_change_is_a_value_or_a_typed_error(decoder: Decoder, seed: str) -> None:
    meter, whole = Meter(decoder.errors), decoder.seeds[seed]

    @given(edits)
    def law(changes: list[Edit]) -> None:
        meter.run(decoder.decode, damaged(whole, changes), f"{decoder.name}, {changes}")

    law()
