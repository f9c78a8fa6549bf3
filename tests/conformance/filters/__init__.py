"""kube-scheduler's filters: random worlds, and how the answers of Kubernetes' own code are compared with ours."""
