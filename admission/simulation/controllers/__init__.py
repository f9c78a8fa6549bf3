"""What controllers make of workloads that Muster does not read in a cluster."""

__all__ = ["replicas", "train_jobs"]
