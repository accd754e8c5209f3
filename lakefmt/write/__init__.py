"""Writes: from a batch of rows to a completed instant."""
