"""The frozen state of the cluster that a gang is planned against."""

__all__ = ["cluster_state", "incremental", "simulation", "virtual_time", "what_if"]
