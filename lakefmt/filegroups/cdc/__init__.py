"""Change data capture: change files, and the changes of a file group."""
