"""Finding and repairing damage.

``collect*`` reads the facts of a table, ``rules`` and ``facts`` turn them into ``findings``; ``repair`` executes the plan.
"""
