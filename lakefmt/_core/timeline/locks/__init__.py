"""The table lock: one protocol and its providers.

``open`` chooses the provider that settings name; ``api`` is the protocol; ``lease`` is what providers share,
``services`` has those of ZooKeeper, Hive and DynamoDB, ``local`` holds the locks of this machine, and a turn that keeps a lock between attempts.
"""
