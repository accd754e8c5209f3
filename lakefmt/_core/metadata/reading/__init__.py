"""Reading the metadata table.

``reader`` opens it and ``metadata_files`` reads its file slices; ``listing`` lists the files of the data table by it,
``index_readers`` finds record keys by the record index and the secondary ones, and reads statistics of columns.
"""
