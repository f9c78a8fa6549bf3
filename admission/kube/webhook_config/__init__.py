"""The webhook configurations in the cluster."""
