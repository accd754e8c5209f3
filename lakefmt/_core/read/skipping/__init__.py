"""Data skipping: which files a filtered read need not open, and what says so.

``file_selection`` chooses the slices of a read, by statistics and by keys, and reports its choice. ``guarantees`` says
what statistics promise of a slice's rows, ``by_expression`` what the indexes of functions do.
"""
