"""Topics of Kafka as sources of rows, read by assignment: the table's commits say where a job was, never a consumer group.

``source`` is the way in. ``options`` reads settings under Hudi's names, ``offsets`` decides what a round takes, ``client`` speaks to
the brokers, and ``decoding`` turns messages into columns.
"""
