"""The suite of choices: measures indexes, compaction and clustering on this machine, for a table's profile or a workload.

``cells`` lists what is measured, and names the workloads. ``measure`` makes the rows of one cell and runs it in this process;
``run`` runs, each in a process of its own, all that are not done yet, keeps and shows the results, and
fits the costs that advice rests on.
"""
