"""The two-way online joins, one file an algorithm."""
