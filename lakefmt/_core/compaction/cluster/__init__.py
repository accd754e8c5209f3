"""Clustering: file slices are packed into larger files, and their rows put in an order.

``plan`` chooses the partitions and the slices, ``run`` encodes a plan as Hudi does, reads pending ones and drives them,
``rewrite`` writes the new file groups of one group of slices.
"""
