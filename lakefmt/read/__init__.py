"""Read tables: snapshots, time travel, increments, changes."""
