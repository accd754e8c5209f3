"""The published test kit: a model of a table, verbs and strategies, laws, stores that fail, real kills, typed rows.

The chapter `docs/testing.md` shows each module at work. Only ``strategies`` needs hypothesis, only ``suites`` pytest.
"""
