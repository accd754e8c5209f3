"""Log files of merge-on-read tables: encode and decode blocks.

``blocks`` frames blocks and splits Avro records, ``reader`` splits a stream into blocks. ``data_block``, with record positions,
``delete_block`` and ``cdc`` encode and decode contents.
"""
