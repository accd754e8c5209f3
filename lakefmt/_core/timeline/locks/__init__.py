"""The table lock: one protocol and its providers.

``open`` chooses the provider that settings name; ``api`` is the protocol; ``lease`` is what providers share,
``local`` holds the locks of this machine, and a turn that keeps a lock between attempts.
"""
