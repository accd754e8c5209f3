"""Change data capture: tables that follow the tables of a database.

A source turns what it reads into the events of ``events``; a sink writes the events of one table through a stream of the table; a loop
carries events from the source to the sinks and decides when they commit. ``debezium_decoder`` makes events of Debezium's messages,
which client ever brings them; ``debezium_messages`` parses JSON and Avro, turns Connect's types into Arrow's, and asks for schemas.
"""
