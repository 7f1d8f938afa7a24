"""Online joins on Spark: packing of rows, buckets and state."""
