"""The published test kit: a model of a table, stores that count and fail, suites, invariants, comparison of rows."""
