"""Compaction: merging the logs of file slices into new base files.

``plan`` chooses the slices, ``records`` encodes and decodes the plan, ``merge`` merges one slice, ``run`` requests and
executes plans; ``pending`` executes or withdraws plans that other processes left.
"""
