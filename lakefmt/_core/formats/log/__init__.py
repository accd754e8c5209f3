"""Log files of merge-on-read tables: encode and decode blocks.

``blocks`` frames blocks, splits Avro records, and splits a stream into blocks. ``data_block``, with record positions and changes, and
``delete_block`` encode and decode contents.
"""
