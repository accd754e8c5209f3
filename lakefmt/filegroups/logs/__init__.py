"""The logs of a file slice: selecting blocks, reading rows, writing files."""
