"""Catalogs that know tables by name, and what keeps their entries like the tables.

``api`` says what a catalog can do; ``hive`` and ``glue`` are catalogs, ``opening`` opens one by its address. ``entries`` says
what the entries of a table must be, by the table and by Hudi's options; ``sync`` makes them so.
"""
