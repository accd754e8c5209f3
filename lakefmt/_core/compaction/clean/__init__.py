"""Cleaning: removing the file slices that no query needs any more.

``plan`` decides whether a clean is due and which slices these are, by the policy of the settings and by what savepoints, pending
plans and consumers need; ``run`` executes a plan, and encodes and decodes it and the completed clean.
"""
