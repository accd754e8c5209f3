"""The timeline: what happened to a table, what is pending, and what of it conflicts.

``instant`` has instants, their names and the transitions between their states; ``timeline`` is a timeline as a value and
``store`` its directory. ``commit`` and ``metadata_codec`` encode and decode bodies; ``conflict`` decides whether two
writes conflict; ``rollback`` (with restores) plans. ``heartbeat``, ``markers`` and ``consumers`` are files
beside the timeline. ``archive`` selects the instants to archive, reads and extends the archived timeline:
``lsm_timeline`` that of versions 8 and 9, ``v6_archive`` the log files of version 6. ``locks`` is a package of its own.
"""
