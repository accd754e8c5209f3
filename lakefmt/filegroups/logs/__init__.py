"""Log files of a file slice: which blocks count, what they hold, how they are written."""
