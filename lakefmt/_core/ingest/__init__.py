"""Rows of files, of Kafka topics, of other tables and of databases on their way into tables, once or again and again.

``api`` has what a source is: it plans a round from a checkpoint and reads it. A round is one commit, and its checkpoint is stored in
that commit (``api``), in Hudi's own keys and forms, so that Hudi's own tool and this one may take turns. ``run`` loads
jobs, which ``options`` understands, and does their rounds; ``sink`` writes rows, ``transforms`` change
them. Sources: ``open``, ``files`` (in ``folders``), ``inputs`` (the rows of one text or Parquet file), ``kafka``, ``tables``,
``queries``, ``http``. ``migrate`` copies tables of other formats.
"""
