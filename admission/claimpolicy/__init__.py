"""Applies ClaimPolicies to claims at admission."""

__all__ = ["admission", "cel_subject", "defaults", "draft", "match", "pods", "rules", "status", "templates"]
