"""Which keys came and went in the file groups that an instant changed, for the metadata table's indexes of keys.

``file_groups`` asks what the writers of the files recorded, and reads the other files; ``record_index`` plans what the
changes mean for the record index.
"""
