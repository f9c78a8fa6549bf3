"""Manifests of other APIs as Muster or `resource.k8s.io/v1` writes them.

For `muster convert`, `manifests` converts all objects of an input that are of earlier DRA APIs, in place; `equivalents`
has what Kubernetes converts by itself, which is all that `lint` and `simulate` read. `queues` makes Queues and Meters
of what other systems limit, `openb` a cluster and jobs of a public trace.
"""

__all__ = ["equivalents", "findings", "manifests", "openb", "queues", "selectors"]
