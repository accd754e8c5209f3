"""Tools that load and read tables in their own words, each by its own protocol.

``dlt_destination`` is a destination of dlt's pipelines, ``daft_frames`` reads and writes DataFrames of Daft. Each module imports the package of its tool, and nothing else imports the module:
who does not use a tool does not need it.
"""
