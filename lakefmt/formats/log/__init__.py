"""Log files of merge-on-read tables: encode and decode blocks.

``blocks`` frames blocks, ``reader`` splits a stream into blocks. ``data_block``, ``delete_block``
and ``cdc`` encode and decode contents; ``_records`` splits Avro records, ``_positions`` handles
record positions, ``_delete_kryo`` reads delete blocks of older releases.
"""
