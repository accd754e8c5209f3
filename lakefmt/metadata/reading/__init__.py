"""Reading the metadata table.

``reader`` opens it and ``metadata_files`` reads its file slices; ``listing`` lists the files of the data table by it,
``record_index_reader`` finds the file groups of record keys, ``stats_reader`` reads statistics of columns.
"""
