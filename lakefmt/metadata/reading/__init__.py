"""Reading the metadata table: files, places of record keys, statistics of columns."""
