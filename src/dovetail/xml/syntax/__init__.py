"""Query text to a tree: lexer, parser and the nodes they build."""
