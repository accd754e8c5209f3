"""Data skipping: which files a filtered read need not open, and what says so.

``file_selection`` chooses the slices of a read, by statistics and by keys, and reports its choice. ``guarantees`` says
what statistics promise of a slice's rows, ``by_statistics`` leaves out files by what the metadata table says of columns and of functions of them.
"""
