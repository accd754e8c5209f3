"""Which index, table type, services and file sizes a table should have, and what they are expected to cost.

``profile`` describes a table with its writes, and the choices for it; ``profiling`` takes such a profile from commits and
footers, where no row is read, and the costs of this machine or the shipped ones. ``advise`` predicts
what a choice reads and writes, turns that into seconds by measured costs, and compares all choices.
"""
