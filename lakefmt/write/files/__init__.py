"""Writing the files of a batch.

``base_file`` writes a base file or adopts that of an earlier attempt; ``log_payloads`` does so with logs, ``cdc`` with
change files. ``meta_columns`` completes rows, ``workers`` is the thread pool.
"""
