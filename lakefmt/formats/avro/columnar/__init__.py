"""Avro records to Arrow columns and back, without a loop over records.

``codec`` is the way in: it compiles a schema (``plan``), then calls ``decode`` or ``encode``. The others are their parts:
``_cursor`` (positions in the bytes), ``_nested`` (arrays, maps), ``segments`` (byte ranges), ``varint`` (integers).
"""
