"""File formats: Parquet base files, log files, Avro, properties, file names, bloom filters. No I/O."""
