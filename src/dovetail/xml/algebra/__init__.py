"""The logical algebra of XQuery: expressions, operators, their text, and the first plan of a query."""
