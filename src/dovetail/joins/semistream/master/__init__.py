"""Master data on storage, as pages that joins read through an index or one after the other.

* `store`: `MasterStore`, which a query names, ships to its workers and opens there; rows with a null in the key.
* `page_file/`, `parquet`, `sqlite`, `postgres/`: the kinds of store. `ranges`: tables of a database, by key ranges.
* `pages`: one open version, as joins see it.
"""
