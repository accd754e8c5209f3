"""Speed and memory of lakefmt beside its peers: ``python -m benchmarks.run``."""
