"""The rules of the books: which entries follow from what was granted, used, released."""

__all__ = ["accruals", "books", "seat_transfer"]
