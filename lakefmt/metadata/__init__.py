"""The metadata table: a table of Hudi's inside the table, with its file listing, column statistics and indexes."""
