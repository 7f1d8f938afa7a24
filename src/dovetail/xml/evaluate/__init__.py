"""The dynamic evaluator: trees become Python closures once, and closures give sequences of items."""
