"""Objects of Kubernetes, decoded."""
