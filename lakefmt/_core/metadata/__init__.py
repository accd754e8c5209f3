"""The metadata table: a table of Hudi's inside the table, with its file listing, column statistics and indexes.

``observer`` keeps it right with every completion of an instant and ``writer`` writes its file slices; ``collect`` and
``updates`` say which records a commit changes. ``records`` has the records, ``layout`` the file groups of its partitions and the
keys of records. ``manage`` makes and drops it, and archives its timeline; ``services`` runs what is due, and cleans, and ``compaction`` merges
logs. ``reading`` is a package of its own.
"""
