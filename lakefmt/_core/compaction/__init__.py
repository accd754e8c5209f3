"""Table services: compaction, log compaction, clustering, clean and archive.

``service`` is the driver that they share. Each has a planner, the encoding of its timeline files and an executor whose steps may be
repeated: ``compact_plan``, ``compact_merge`` (one slice) and ``compact_run``; ``log_compact``; ``cluster_plan``, ``cluster_rewrite`` (one
group of slices) and ``cluster_run``; ``clean_plan`` and ``clean_run``; ``archive``. ``scheduler`` runs services after commits or in a thread, ``operations`` gives operations to other processes.
"""
