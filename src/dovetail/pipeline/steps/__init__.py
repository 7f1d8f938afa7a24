"""Steps as DataFrames: `sources` (with `file_schema`), `masters`, `joins`; `build` puts them together for each sink."""
