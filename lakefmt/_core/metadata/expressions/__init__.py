"""Expression indexes of the metadata table: files and data partitions told by what a function gives for a column.

``functions`` computes Spark's functions by columns; ``index_updates`` reads the files of an instant, makes the records of an index
and plans what the instant changes.
"""
