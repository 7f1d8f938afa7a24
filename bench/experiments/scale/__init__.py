"""Scale: growth of each family with its input, two executors beside one process, and 100 nodes on paper."""
