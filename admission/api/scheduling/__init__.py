"""The part of a pod's spec that kube-scheduler's filters read beside resources: other pods, ports, volumes."""

__all__ = ["exclusive_domains", "pod_volumes", "scheduling_rules"]
