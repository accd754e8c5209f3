"""Table services: compaction, log compaction, clean and archive.

``service`` is the driver that compaction, log compaction and clean share; each package has a pure planner, the
encoding of its timeline files and an executor whose steps may be repeated; those of log compaction are
in ``log_compact``. ``scheduler`` runs services after commits or in a thread, ``operations`` gives operations to other processes.
"""
