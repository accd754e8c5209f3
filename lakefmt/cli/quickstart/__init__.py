"""`lakefmt quickstart`: a year of real flights through every verb, judged by DuckDB and by hudi-rs."""
