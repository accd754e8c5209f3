"""The commands, grouped by what they do.

``rows`` reads rows, also as they come, and shows timeline and files, ``change`` makes a table and changes rows and columns.
``services`` runs table services, ``maintenance`` finds damage, goes back and upgrades; ``ingest`` brings rows of files, topics and
databases, ``serve`` has the servers; ``catalog``, ``index`` and ``bench`` do what their names say. Importing them imports neither rich nor the table: these come when a
command runs.
"""
