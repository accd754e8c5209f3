"""Tables read as streams: rows of new commits as they complete, in a promised order, with progress that survives.

``arguments`` reads what a caller asks; ``position`` and ``steps`` decide what was read and what comes next; ``part_reading``
and ``parallel_reading`` read it; ``stream`` joins them. ``progress`` keeps a consumer's position in the table, ``registry``
lists consumers, ``alignment`` holds streams back that run ahead. It imports no writer.
"""
