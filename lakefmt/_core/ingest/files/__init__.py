"""Files on a path, in a bucket or a container as a source of rows.

``reading`` makes rows of a file by its format; ``source`` lists and opens files, and chooses which come next: by time and name, none
twice, none forgotten.
"""
