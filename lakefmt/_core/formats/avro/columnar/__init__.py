"""Avro records to Arrow columns and back, without a loop over records.

``codec`` is the way in: it compiles a schema (``plan``), then calls ``decode`` or ``encode``. The others are their parts:
``segments`` (byte ranges) and ``varint`` (integers).
"""
