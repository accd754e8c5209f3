"""MariaDB's binary log as a source of changes.

The decoder is lakefmt's own: a row of the log is cut into values column by column, so that Arrow columns come out without a Python object
for each value, and what the log does not say, such as which sixteen bytes are a UUID, comes from the server's description of the table.

``columns``: types; ``log_events``: the log's bytes; ``table_map``: a table as the log describes it; ``values``: bytes to Arrow;
``selected``: what SELECT gives to Arrow; ``statements``: which statements of the log matter; ``positions``: where a table is;
``connection``: the client; ``log``: the stream of events; ``snapshot``: rows of now by chunks; ``preflight``: what the server lacks;
``following``: the loop that joins them; ``source``: the reader.
"""
