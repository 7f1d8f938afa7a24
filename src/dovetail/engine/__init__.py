"""What every join stands on, without Spark: memory, spill files, metrics, clocks, devices, operators, columns, keys."""
