"""The suite of choices: measures indexes, compaction and clustering on this machine, for a table's profile or a workload.

``workloads`` names the profiles, ``rows`` makes rows after a profile, ``cells`` lists what is measured. ``measure`` runs one
cell in this process and ``child`` in one of its own; ``run`` runs all that are not done yet and ``records`` keeps the
results. ``table_text`` and ``page`` show them, ``fit`` compares them with the costs that advice rests on.
"""
