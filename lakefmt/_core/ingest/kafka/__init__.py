"""Topics of Kafka as sources of rows, read by assignment: the table's commits say where a job was, never a consumer group.

``source`` is the way in. ``options`` reads settings under Hudi's names, ``client`` speaks to the brokers and decides
what a round takes, ``decoding`` turns messages into columns.
"""
