"""Assets of Dagster kept in tables: an IO manager to copy, and two assets that use it (``python -m examples.dagster_assets FOLDER``)."""
