"""Answers one AdmissionReview."""

__all__ = ["caches", "expected_pods", "provided_templates", "reviewer"]
