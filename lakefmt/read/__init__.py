"""The reading road: snapshot, time travel, increments."""
