"""Change data capture: the change files of a commit, and the changes of a file group.

``files`` finds change files and the commits that have them; ``rows`` turns images of records into the rows that a
change query returns.
"""
