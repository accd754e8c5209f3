"""The archived timeline of both layouts.

``store`` selects the instants to archive, reads and extends it. ``lsm_timeline`` is the LSM timeline of
versions 8 and 9, ``v6_log`` the log files of version 6.
"""
