"""Log files of merge-on-read tables: blocks to values and back.

``blocks`` frames blocks, ``reader`` walks over a file. ``data_block``, ``delete_block`` and ``cdc`` decode the contents;
``records`` cuts records, ``positions`` reads record positions, ``delete_kryo`` the delete blocks of older releases.
"""
