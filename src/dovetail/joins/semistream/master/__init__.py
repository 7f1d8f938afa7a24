"""Master data on storage, as pages that joins read through an index or one after the other."""
