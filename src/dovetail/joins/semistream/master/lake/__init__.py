"""Tables of data lakes as master data: immutable Parquet files, of which a version of the table lists some.

* `delta`, `iceberg`: the tables, their versions, and the files of a version.
* `data_files`: footers of these files, rows that were deleted, columns that changed since a file was written.
"""
