"""Compiled loops of functions of interval sets."""
