"""Tables of a PostgreSQL server.

* `source`: the table, its columns, key and ranges, and the reader of one version.
* `connection`: connections, and errors without passwords.
"""
