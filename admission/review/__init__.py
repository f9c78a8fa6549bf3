"""One AdmissionReview, from the request to its response."""
