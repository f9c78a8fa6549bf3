"""Proof that the books are right: verification, replay, archives."""
