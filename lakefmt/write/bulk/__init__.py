"""Bulk insert: new files from a stream of rows, held in bounded memory.

``bulk_insert`` keeps the files of several partitions open at a time and sorts rows where that is asked for, in memory or
through temporary files; ``row_order`` orders them by columns, ``placed_parts`` by file group.
"""
