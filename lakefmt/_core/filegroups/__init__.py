"""File groups and their file slices: which files form one, and how it is read, merged and written.

``table_client`` is the way to a table and ``model`` has slices as values; ``listing`` finds the files, ``reader`` reads
base files and ``base_writer`` writes them. ``ordering`` compares records as Hudi does; ``pending_plans``
tells what planned services take, ``missing_completions`` finds lost completion times. ``cdc`` finds, writes and reads changes. ``log_reader`` and
``log_writer`` have the logs; ``merge`` merges rows into a base file, ``merged_slice`` a slice with its logs, ``precombine`` rows of one key.
"""
