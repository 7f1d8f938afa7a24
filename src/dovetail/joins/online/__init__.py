"""Online joins: stream against stream, results as early as possible, inside a budget."""
