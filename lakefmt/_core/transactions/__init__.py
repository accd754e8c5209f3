"""What every change of a table shares: the lock, the instant, recovery from failed writers.

``client`` holds the lock, the settings and the writer id of a call, and decides how a writer behaves beside others. ``instant`` is
the life of one instant, from its claim to its completion. ``recovery`` rolls back what dead writers left, ``rollback_executor``
executes rollbacks and restores, and ``indexing`` makes and removes indexes of the metadata table.
"""
