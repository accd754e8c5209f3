"""Which index, table type, services and file sizes a table should have, and what they are expected to cost.

``profile`` describes a table and its writes, ``profiling`` takes such a profile from commits and footers; no row is read.
``choices`` are the settings to choose from, ``amounts`` predicts what a choice reads and writes, ``curves`` turns amounts
into seconds by measured costs, ``advise`` compares all choices. ``kept_curves`` reads the costs of this machine or the
shipped ones. ``verbs`` has the method ``advise`` of a table.
"""
