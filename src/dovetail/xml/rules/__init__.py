"""The rewrite rules of plans, one rule a file; `order` says when each of them runs."""
