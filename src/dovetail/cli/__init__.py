"""The command `dovetail`."""
