"""Data skipping: which files a filtered read need not open, and what says so."""
