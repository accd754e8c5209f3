"""Data skipping: which files a filtered read need not open, and what says so.

``file_selection`` chooses the slices of a read, by statistics and by keys; ``guarantees`` says what statistics promise of
a slice's rows, ``expression_ranges`` what the range of a function says of its column, ``key_values`` which keys a condition
names, ``implied_conditions`` what an Arrow expression says of columns. ``explain`` tells the choice, as a ``report``.
"""
