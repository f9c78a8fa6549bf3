"""ClaimPolicies: what claims get when their author is silent, and what they may not ask."""

__all__ = ["admission", "cel_subject", "defaults", "draft", "match", "pods", "rules", "status", "templates"]
