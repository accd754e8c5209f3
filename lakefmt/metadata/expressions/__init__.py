"""Expression indexes of the metadata table: files and data partitions told by what a function gives for a column.

``functions`` computes Spark's functions by columns, with ``time_patterns`` for times as texts; ``index_records`` makes the
records of an index of that; ``index_updates`` reads the files of an instant and plans what it changes.
"""
