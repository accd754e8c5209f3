"""lakefmt: Apache Hudi tables from Python, without a cluster."""
