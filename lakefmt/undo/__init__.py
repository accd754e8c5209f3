"""Going back: rollback of an instant, savepoint, restore.

``verbs`` are the methods of a table; ``rollback``, ``savepoint`` and ``restore`` do what their names say. The plans come
from :mod:`lakefmt.timeline`, the executors from :mod:`lakefmt.transactions`.
"""
