"""Avro: object container files of the timeline, and records to columns and back.

``container`` and ``values`` serve commit metadata and plans; ``columnar`` turns blocks of records into Arrow.
"""
