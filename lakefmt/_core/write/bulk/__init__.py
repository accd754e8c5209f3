"""Bulk insert: new files from a stream of rows, held in bounded memory.

``bulk_insert`` keeps the files of several partitions open at a time and sorts rows where that is asked for, in memory or
through temporary files; ``grouped_rows`` writes rows file group by file group, ``deleted_keys`` deletes keys so.
"""
