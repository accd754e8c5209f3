"""MariaDB's binary log as a source of changes.

The decoder is lakefmt's own: a row of the log is cut into values column by column, so that Arrow columns come out without a Python object
for each value, and what the log does not say, such as which sixteen bytes are a UUID, comes from the server's description of the table.

``log``: the client, the log's events, their stream and positions in it; ``rows``: its rows as Arrow; ``statements``: types of
columns, and which statements matter; ``snapshot``: rows of now; ``following``: the loop that joins them; ``source``: the reader.
"""
