"""The command `muster serve`."""
