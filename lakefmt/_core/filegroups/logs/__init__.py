"""The logs of a file slice.

``reader`` chooses the blocks that count, reads their rows and deletes, and tells what is wrong with a log; ``writer`` writes
log files.
"""
