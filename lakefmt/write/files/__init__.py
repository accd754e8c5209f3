"""Writing the files of a batch: base files, logs, change data."""
