"""Signed heads of the ledger's chain, which are kept outside of its database to prove it.

A leader signs the end of the chain and publishes it where the owner of the database cannot write. All of this is pure;
`controller` signs and publishes, `ledger.audit` compares the heads with the books.
"""

__all__ = ["head_document", "key_history", "retention", "signed_head"]
