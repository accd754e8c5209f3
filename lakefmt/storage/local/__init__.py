"""The store on a local disk: atomic files, compare-and-swap, process locks."""
