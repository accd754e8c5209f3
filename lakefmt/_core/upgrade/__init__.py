"""Upgrading a table to a newer table version.

``plan`` decides what has to change, file by file, and names what stands in the way; ``run`` executes it under the table
lock, in an order that a process which dies can repeat.
"""
