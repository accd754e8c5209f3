"""File formats: bytes to values and back.

``names`` is the grammar of file names and ``properties`` that of Java's properties files. ``parquet`` has base files,
``log`` log files, ``avro`` the bodies of instants and the records of logs, ``bloom`` the filters in footers and ``hfile``
the files of the metadata table.
"""
