"""Validation of objects that come from files, as by the API server.

`objects.problems` is the entry point for those of resource.k8s.io, `objects.other_problems` for other kinds of
Kubernetes, `pods.templates.problems` for pod templates, and `openapi` is what holds for the fields of all kinds.
Objects of a live cluster are not validated here: their API server has done so, and a newer one may allow more.
Decoders, which read both, refuse only what they cannot represent.

The rules are those of `k8s.io/kubernetes` pkg/apis/*/validation (v1.36.3, v1.37.1), for features that are on by
default. Where the two differ, the laxer rule is used, since a dump of either API server must be readable.
`STRICTER` in tests/e2e/test_validation.py names what is refused here and not there.
"""

__all__ = ["apps", "claims", "objects", "openapi", "pods"]
