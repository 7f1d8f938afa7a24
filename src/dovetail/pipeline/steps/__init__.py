"""Makes DataFrames of steps: `sources`, `masters` and `joins`; `build` combines them for each sink."""
