"""One AdmissionReview, from the request to its response."""

__all__ = ["caches", "provided_templates", "reviewer"]
