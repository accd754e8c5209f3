"""Parquet base files: footers, row groups, column chunks.

``base_file`` reads and writes whole files, and carries dictionaries over in rewrites;
``duplicate_columns`` stores the key column once where two columns hold the same values, and keeps the pages that a rewrite does not
change; ``page_search`` finds texts in pages.
"""
