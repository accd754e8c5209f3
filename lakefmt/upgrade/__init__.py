"""Upgrade a table to a newer table version: ``plan`` decides, ``run`` executes."""
