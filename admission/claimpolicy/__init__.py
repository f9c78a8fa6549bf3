"""Applies ClaimPolicies to claims: defaults, then what may not be asked."""

__all__ = ["admission", "cel_subject", "defaults", "draft", "match", "pods", "rules", "status", "templates"]
