"""Cleaning: which file slices no query needs any more (``plan``), and removing them (``run``)."""
