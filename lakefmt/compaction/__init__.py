"""Table services: compaction, log compaction, clean and archive.

``service`` is the driver that compaction, log compaction and clean share; each of them has a pure planner (``plan``), the
encoding of its timeline files (``records``) and an executor whose steps may be repeated (``run``); those of log compaction are
in ``log_compact``. ``scheduler`` runs services after commits or in a thread, ``operations`` gives operations to other processes.
"""
