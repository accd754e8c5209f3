"""The published test kit: a table model, operations and strategies, invariants, failing stores, crashes, typed rows.

`docs/dev/testing.md` shows each module. Only ``strategies`` needs hypothesis, only ``suites`` needs
pytest.
"""
