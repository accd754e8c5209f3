"""The table lock: one protocol and its providers.

``open`` chooses the provider that settings name; ``api`` is the protocol; ``lease`` and ``reentrant`` are what providers share.
"""
