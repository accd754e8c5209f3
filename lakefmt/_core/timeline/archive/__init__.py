"""The archived timeline of both layouts.

``store`` reads and extends it, ``plan`` selects the instants to archive. ``lsm_timeline`` is the LSM timeline of
versions 8 and 9, ``v6_log`` the log files of version 6.
"""
