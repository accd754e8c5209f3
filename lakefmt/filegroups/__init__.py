"""The file slices of a table: which files form one, and how it is read, merged and written."""
