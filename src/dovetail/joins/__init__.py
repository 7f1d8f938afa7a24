"""Families of joins, a folder each."""
