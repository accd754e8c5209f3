"""Bloom filters as Hudi stores them in the footers of base files.

``bloom_filter`` reads, writes and fills them; ``murmur`` holds the hash functions.
"""
