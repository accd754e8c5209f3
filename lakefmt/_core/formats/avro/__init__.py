"""Avro: object container files of the timeline, and records to columns and back.

``container``, ``reader`` and ``writer`` serve commit metadata and plans; ``columnar`` turns blocks of records into Arrow.
"""
