"""Bloom filters as Hudi stores them in base file footers.

``bloom_filter`` encodes, decodes, fills and queries them; ``murmur`` has the hash function.
"""
