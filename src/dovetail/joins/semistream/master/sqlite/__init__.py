"""Tables of SQLite files: `source` opens and reads a version, `layout` has the table's types, key and ranges."""
