"""Bytes and values: Parquet base files, Avro, properties, file names, bloom filters. No decisions about I/O."""
