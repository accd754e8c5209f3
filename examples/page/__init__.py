"""A year of flights as commits, shown in the browser while a writer goes on beside the page."""
