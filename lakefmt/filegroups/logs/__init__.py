"""The logs of a file slice.

``block_selection`` decides which blocks count, ``reader`` reads their rows and deletes, ``writer`` writes log files;
``log_inspection`` says what is wrong with a log.
"""
