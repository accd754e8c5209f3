"""Which files make up a file slice, and reading, merging and writing one."""
