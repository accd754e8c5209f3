"""Check and repair tables.

``collect`` reads the facts of a table, ``rules`` turn them into ``findings``; ``repair`` executes
the plan.
"""
