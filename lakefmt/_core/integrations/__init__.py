"""Tools that load and read tables in their own words, each by its own protocol.

``dlt_destination`` is a destination of dlt's pipelines, ``daft_frames`` reads and writes DataFrames of Daft, ``ray_data`` datasets of
Ray; ``task_writes`` is what these two share. A module imports the package of its tool, and nothing imports the module before its tool is
used.
"""
