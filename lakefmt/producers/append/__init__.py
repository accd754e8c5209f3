"""Tables without keys, such as logs and events: rows are added and never changed one by one (docs/append.md).

``creation`` plans the properties of such a table, ``options`` translates Paimon's option names, ``entries`` decides whether
an append was done already, ``verbs`` are the methods of a table, ``tags`` names states, and ``expiry`` picks old partitions.
"""
