"""Files on a path, in a bucket or a container as a source of rows.

``listing`` lists what is there and opens it, ``reading`` makes rows of a file by its format, ``source`` chooses which files come next:
by time and name, none twice, none forgotten.
"""
