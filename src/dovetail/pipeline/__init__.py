"""Pipelines declared in a file: sources, masters, joins and sinks, checked before they run, watched while they do."""
