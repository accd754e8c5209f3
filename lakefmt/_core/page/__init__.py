"""A page for tables: what a browser shows of them, and one file to send (``lakefmt ui``, ``lakefmt report``).

``tables`` knows which tables may be asked for. Facts are JSON values, the same for the page and for programs: ``timeline``,
``contents`` and ``services`` make them. ``routes`` says which address gives which facts, ``html`` turns facts into pages and reports, ``server``
is the door: who may ask, and how much. ``services`` also plans, asks and runs what changes a table.
"""
