"""Applies ClaimPolicies to the claims of new pods."""

__all__ = ["claims_annotation", "extended_resources", "pending_templates", "pod_rules", "required_claims"]
