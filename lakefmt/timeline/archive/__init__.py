"""The archived part of the timeline, in both layouts.

``store`` reads it, ``plan`` decides which instants may be archived. ``lsm_*`` is the LSM timeline of versions 8 and 9,
``v6_*`` the archive logs of version 6.
"""
