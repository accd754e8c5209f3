"""Avro records to Arrow columns and back, without a loop over records.

``codec`` is the way in: it compiles a schema (``plan``), then calls ``decode`` or ``encode``. The others are their parts:
``cursor`` (positions in the bytes), ``nested`` (arrays, maps), ``segments`` (byte ranges), ``varint`` (integers).
"""
