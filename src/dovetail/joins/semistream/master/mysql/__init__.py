"""MySQL and MariaDB as master data: the connection, and a table in key ranges with its versions."""
