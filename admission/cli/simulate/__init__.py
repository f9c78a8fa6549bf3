"""The command `muster simulate`."""
