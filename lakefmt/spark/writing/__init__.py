"""Write DataFrames: Spark's tasks key, place and write the rows, the driver plans and commits.

``dataframe`` is the function of the user and ``distributed`` runs one write by Spark's tasks; ``staging``
is the way of small writes and of sessions that give no shuffle, where one process writes what the tasks have staged.
"""
