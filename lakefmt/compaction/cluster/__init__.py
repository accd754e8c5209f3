"""Clustering: file slices are packed into larger files, and their rows put in an order.

``plan`` chooses the slices, ``partitions`` the partitions, ``records`` encodes a plan as Hudi does, ``run`` drives it,
``rewrite`` writes the new file groups of one group of slices.
"""
