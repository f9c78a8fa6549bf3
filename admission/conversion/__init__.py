"""Manifests of earlier DRA APIs as `resource.k8s.io/v1` writes them.

For `muster convert`, `manifests` converts all objects of an input, in place; `equivalents` has what Kubernetes converts
by itself, which is all that `lint` and `simulate` read. `kueue` makes Queues and Meters of Kueue's objects.
"""

__all__ = ["equivalents", "findings", "kueue", "manifests"]
