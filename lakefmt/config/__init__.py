"""Settings of a call and properties of a table.

``settings`` resolves what a call, a handle and a table ask for; ``catalog`` is the table of every setting that exists.
``table_config`` is what ``hoodie.properties`` says. ``merge_rule`` tells how two rows of one key become one, and
``mergers`` keeps the merge functions that a process has registered.
"""
