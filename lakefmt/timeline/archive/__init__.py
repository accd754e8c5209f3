"""The archived timeline of both layouts.

``store`` reads it, ``plan`` selects the instants to archive. ``lsm_*`` is the LSM timeline of
versions 8 and 9, ``v6_*`` the log files of version 6.
"""
