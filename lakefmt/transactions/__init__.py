"""What every change of a table shares: the lock, the instant, recovery from failed writers.

``client`` holds the lock, the settings and the writer id of a call; ``concurrency`` tells how it behaves beside others;
``recovery`` rolls back what dead writers left.
"""
