"""What every change of a table shares: the lock, the instant, recovery from failed writers.

``client`` holds the lock, the settings and the writer id of a call; ``instant`` is the life of one instant, from its claim
to its completion; ``concurrency`` decides how a writer behaves beside others; ``recovery`` rolls back what dead writers
left, and executes rollbacks and restores; ``indexing`` makes and removes indexes of the metadata table.
"""
