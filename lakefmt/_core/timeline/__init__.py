"""The timeline: what happened to a table, what is pending, and what of it conflicts.

``instant`` has instants, their names and the transitions between their states; ``timeline`` is a timeline as a value and
``store`` its directory. ``commit`` and ``metadata_codec`` encode and decode bodies; ``conflict`` decides whether two
writes conflict; ``rollback`` (with restores) plans. ``heartbeat``, ``markers`` and ``consumers`` are files
beside the timeline. ``locks`` and ``archive`` are packages of their own.
"""
