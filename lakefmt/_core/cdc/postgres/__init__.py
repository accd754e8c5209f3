"""Tables of PostgreSQL as a source of changes, through logical replication.

``source`` is what a user opens; a run of it is a ``follow``, which takes rows from a ``snapshot`` and changes from the log.
``rows`` decodes messages of the log and turns texts of the server into values, ``server`` has connections, catalog and log.
"""
