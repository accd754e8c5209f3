"""Data skipping: which files a filtered read need not open, and what says so.

``file_selection`` chooses the file slices of a read: by statistics of the metadata table, by a record index or by a
secondary index (``key_values`` finds the keys in a condition). ``guarantees`` says what statistics promise, ``explain``
and ``report`` tell what was left out by what.
"""
