"""A year of flights as messages of Kafka and the weather as JSON files, into two tables by one process that is killed: `make demo-ingest`."""
