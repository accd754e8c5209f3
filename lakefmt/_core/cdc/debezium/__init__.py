"""Messages of Debezium as events: bytes in, events out; which client brings the bytes is no matter.

``decoder`` is what a user holds. ``messages`` parses JSON and Avro, ``envelopes`` tells what a message means, ``columns`` turns Connect's
types into Arrow's, ``registry`` asks for schemas of Avro by their ids.
"""
