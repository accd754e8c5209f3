"""A year of real flights through Spark and lakefmt, then read by Hudi's own Spark reader, hudi-rs and plain lakefmt."""
