"""The frozen cluster state that gangs are planned against."""

__all__ = ["cluster_state", "incremental", "nodes_to_come", "nominated_pods", "virtual_time", "what_if"]
