"""Catalogs that know tables by name, and what keeps their entries like the tables.

``api`` says what a catalog can do; ``hive`` and ``glue`` are catalogs. ``entries`` says
what the entries of a table must be, by the table and by Hudi's options; ``sync`` opens a catalog by its address and makes them so.
"""
