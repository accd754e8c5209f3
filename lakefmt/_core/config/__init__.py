"""Settings of a call and properties of a table.

``settings`` resolves the settings of a call; ``catalog`` lists all settings. ``table_config`` has
the typed table properties, ``merge_rule`` the rule for two rows with one key and the registered
merge functions.
"""
