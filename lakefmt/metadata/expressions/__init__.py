"""Expression indexes of the metadata table: what Spark's functions give for columns, and the records made of that.

``functions`` computes them by columns, with ``time_patterns`` for Java's date formats. ``index_records`` makes the records
of an index from values, ``index_updates`` those of a commit.
"""
