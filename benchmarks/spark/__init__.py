"""lakefmt and Apache Hudi beside each other in one warm session of Spark."""
