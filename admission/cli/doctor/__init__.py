"""The command `muster doctor`."""
