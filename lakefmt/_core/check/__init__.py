"""Check and repair tables.

``collect`` reads the facts of a table, ``rules`` turn them into ``findings``; ``repair`` executes
the plan. ``run`` has the check, also that of indexes, which compares the metadata table with what is stored; ``vacuum`` removes files that nothing needs.
"""
