"""Services of the metadata table: ``run`` calls compaction, clean and archive when they are due."""
