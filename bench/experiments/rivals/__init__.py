"""What becomes of rivals when memory is short."""
