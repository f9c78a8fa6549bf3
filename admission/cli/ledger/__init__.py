"""The commands of `muster ledger`."""

__all__ = ["options"]
