"""What benchmarks compare with and run on: rivals of each join, the servers that they need, and data for them."""
