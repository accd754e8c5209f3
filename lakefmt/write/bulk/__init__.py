"""Bulk insert: streams, external sort, new files by partition."""
