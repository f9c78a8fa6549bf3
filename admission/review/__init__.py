"""Answers one AdmissionReview."""

__all__ = ["caches", "provided_templates", "reviewer"]
