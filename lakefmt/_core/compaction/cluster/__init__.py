"""Clustering: file slices are packed into larger files, and their rows put in an order.

``plan`` chooses the partitions and the slices, ``records`` encodes a plan as Hudi does and reads pending ones, ``run`` drives it,
``rewrite`` writes the new file groups of one group of slices.
"""
