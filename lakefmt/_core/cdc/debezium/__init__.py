"""Messages of Debezium as events: bytes in, events out; which client brings the bytes is no matter.

``decoder`` is what a user holds; ``messages`` parses JSON and Avro, turns Connect's types into Arrow's, and asks for schemas.
"""
