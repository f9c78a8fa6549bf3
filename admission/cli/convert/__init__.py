"""The command `muster convert`."""
