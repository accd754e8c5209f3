"""Avro records to Arrow columns and back, without a loop over records.

``codec`` is the way in: it compiles a schema (``plan``), then calls ``decode`` or ``encode``. ``varint`` is their part for integers and bytes.
"""
