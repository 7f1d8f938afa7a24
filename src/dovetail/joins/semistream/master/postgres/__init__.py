"""Tables of a PostgreSQL server.

* `source`: the table, and the reader of one version. `connection`: connections, and errors without passwords.
* `layout`: the table's columns, key and ranges, and the keys that a query asks for.
"""
