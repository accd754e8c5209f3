"""Tables without keys, such as logs and events: rows are added and never changed one by one (docs/append.md).

``verbs`` are the methods of a table and what they decide by, ``tags`` names states.
"""
