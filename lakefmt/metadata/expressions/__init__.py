"""Expression indexes of the metadata table: what Spark's functions give for columns, and the records made of that."""
