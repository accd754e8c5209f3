"""Reading tables: snapshots, time travel, increments, changes.

``verbs`` are the methods of a table; ``snapshot`` is a table at one moment and ``snapshot_files`` the files of a query.
``file_selection`` chooses the slices that a filtered read opens, by statistics (``statistics_selection``), by what they
promise of a slice's rows (``partition_guarantees``) and by keys. ``scan`` and ``mor_scan`` read their rows, ``splits`` cuts them into parts. ``filters`` parses filters, which are conditions of
``filter_terms``; what they compute are ``sql_expressions``. ``dataset`` and ``polars_scan`` hand a table to engines that push
filters down. ``incremental`` and ``changes`` read what happened since an instant; ``stats`` describes a table.
"""
