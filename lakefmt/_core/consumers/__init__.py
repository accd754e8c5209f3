"""Tables read as streams: rows of new commits as they complete, in a promised order, with progress that survives.

``registry`` has ``table.stream`` and lists consumers; ``position`` checks its arguments, and decides what was read and what comes
next, ``planning`` finds the commits and reads them; ``stream`` joins them, and holds streams back that run ahead.
``progress`` keeps a consumer's position in the table. The package imports no writer.
"""
