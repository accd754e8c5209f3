"""The metadata table: a table of Hudi's inside the table, with its file listing, column statistics and indexes.

``observer`` records every completion of an instant and runs the services that are due; ``writer`` writes its file slices; ``collect`` and
``updates`` say which records a commit changes. ``records`` has the records, ``layout`` the file groups of its partitions and the
keys of records. ``manage`` makes and drops it, and archives its timeline; ``compaction`` merges logs. ``reader`` opens
it and ``metadata_files`` reads its file slices; ``listing`` lists the files of the data table by it, ``index_readers`` finds record
keys by the record index and the secondary ones, and reads statistics of columns.
"""
