"""The command `muster why`."""
