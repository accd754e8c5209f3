"""File formats: bytes to values and back.

``names`` is the grammar of file names and ``properties`` that of Java's properties files. ``parquet`` has base files, ``avro``
the bodies of instants and the records of logs. ``log_blocks`` frames the blocks of log files, ``log_data_block`` and
``log_delete_block`` encode and decode their contents. ``bloom_filter`` (with the hash function ``murmur``) has the filters in footers.
``hfile_container`` and ``hfile_blocks`` have the files of the metadata table: they read what every Hudi release wrote, and make what
every release reads.
"""
