"""Catalogs that know tables by name, and what keeps their entries like the tables.

``hive`` and ``glue`` are catalogs. ``entries`` has the protocol of a catalog and says
what the entries of a table must be, by the table and by Hudi's options; ``sync`` opens a catalog by its address and makes them so.
"""
