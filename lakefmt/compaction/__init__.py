"""Table services: compaction, log compaction, clean and archive.

``service`` is the driver that compaction, log compaction and clean share; each of them has a pure planner (``plan``), the
encoding of its timeline files (``records``) and an executor whose steps may be repeated (``run``). ``scheduler`` runs
services after commits, ``background`` runs them in a thread, ``operations`` gives operations to other processes.
"""
