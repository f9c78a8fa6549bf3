"""The commands of `muster ledger`."""
