"""How a rewritten plan is executed in parallel: what scan tasks do, what is joined, and what one last task does."""
