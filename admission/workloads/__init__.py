"""Which pods are a gang."""
