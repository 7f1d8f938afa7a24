"""The compiled loops of nearest joins."""
