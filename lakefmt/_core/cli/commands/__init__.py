"""The commands, grouped by what they do.

``rows`` reads rows and shows timeline and files, ``change`` makes a table and changes rows and columns, ``stream`` prints rows as
they come. ``services`` runs table services, ``undo`` goes back and upgrades, ``check`` finds damage and removes what nothing
needs, ``index`` and ``bench`` do what their names say. Importing them imports neither rich nor the table: these come when a
command runs.
"""
