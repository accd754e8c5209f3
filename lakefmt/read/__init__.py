"""Reading tables: snapshots, time travel, increments, changes.

``verbs`` are the methods of a table; ``snapshot`` is a table at one moment and ``snapshot_files`` the files of a query.
``scan`` and ``mor_scan`` read their rows, ``filters`` compiles conditions. ``incremental`` and ``changes`` read what
happened since an instant; ``stats`` and ``timeline_format`` describe a table.
"""
