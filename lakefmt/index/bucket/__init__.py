"""Hudi's bucket indexes: a key's file group follows from its hash; fixed buckets, and rings that can change."""
