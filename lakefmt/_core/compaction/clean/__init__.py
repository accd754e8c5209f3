"""Cleaning: removing the file slices that no query needs any more.

``plan`` decides which these are, by the policy of the settings and by what savepoints, pending plans and consumers need, and
encodes and decodes the plan and the completed clean; ``run`` executes a plan.
"""
