"""Going back: rollback of an instant, savepoint, restore.

``verbs`` are the methods of a table; ``rollback`` undoes an instant, ``savepoint`` makes savepoints and restores them. The
plans come from :mod:`lakefmt.timeline`, the executors from :mod:`lakefmt.transactions`.
"""
