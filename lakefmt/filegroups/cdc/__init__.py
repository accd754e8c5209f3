"""Change data files: before and after images beside base files and logs."""
