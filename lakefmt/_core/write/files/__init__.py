"""Writing the files of a batch.

``base_file`` writes a base file, with its change file, or adopts that of an earlier attempt; ``bundles`` writes many small
ones together; ``log_payloads`` writes logs. ``meta_columns`` completes rows.
"""
