"""A gang over nodes, device choice left to kube-scheduler's first fit."""
