"""The commands, grouped by what they do.

``rows`` reads, ``change`` writes rows, ``create`` makes a table, ``inspect`` shows timeline and files. ``compact``,
``clean`` and ``archive`` run table services, ``undo`` goes back, ``check``, ``index`` and ``upgrade`` do what their names
say. Importing them imports click only; Arrow comes when a command runs.
"""
