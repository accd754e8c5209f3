"""A year of real flights through every operation of a table, compared with DuckDB and hudi-rs: `make demo`."""
