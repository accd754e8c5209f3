"""Compaction: merging the logs of file slices into new base files.

``plan`` chooses the slices, encodes and decodes the plan and withdraws pending ones, ``merge`` merges one slice,
``run`` requests and executes plans, also those that other processes left.
"""
