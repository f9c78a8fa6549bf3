"""The rules of the books: which entries follow from what was granted, used, released."""
