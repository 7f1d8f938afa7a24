"""Master data on storage, as pages that joins read through an index or one after the other.

* `store`: `MasterStore`, which a query names, ships to its workers and opens there.
* `page_file/`, `parquet`, `lake/`, `sqlite`, `postgres/`: the kinds of store. `row_groups`: Parquet files as pages;
  `ranges`: tables of a database, by key ranges; `null_page`: rows with a null in the key.
* `pages`: one open version, as joins see it.
"""
