"""What the claims of a pod get at admission, or are refused for."""

__all__ = ["claims_annotation", "extended_resources", "pending_templates", "pod_rules", "required_claims"]
