"""The writing road: from a batch to a completed instant."""
