"""Bringing a write to its end: begin, conflict resolution, commit, retry, callbacks."""
