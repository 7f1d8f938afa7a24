"""Items of XQuery's data model: atomic values, nodes over lxml trees, and what can be done with them."""
