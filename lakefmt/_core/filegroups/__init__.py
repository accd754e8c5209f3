"""File groups and their file slices: which files form one, and how it is read, merged and written.

``table_client`` is the way to a table and ``model`` has slices as values; ``listing`` finds the files, ``reader`` reads
base files and ``base_writer`` writes them. ``ordering`` compares records as Hudi does; ``virtual_columns`` adds what
files lack; ``pending_plans`` tells what planned services take; ``missing_completions`` finds lost completion times;
``cdc`` finds, writes and reads changes. ``merge`` and ``logs`` are packages of their own.
"""
