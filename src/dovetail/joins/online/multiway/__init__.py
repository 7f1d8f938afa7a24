"""Online joins of three and more streams over a tree of predicates."""
