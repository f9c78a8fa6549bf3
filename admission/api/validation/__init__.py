"""What the API server would refuse of resource.k8s.io: the checks for objects that come from files.

`objects.flaws` is the entrance. Objects of a live cluster do not pass here: their API server has judged them, and a
newer one may allow more. Decoders, which read both, refuse only what they cannot represent.

The rules are those of `k8s.io/kubernetes` pkg/apis/resource/validation (v1.36.3, v1.37.1), of features that are on by
default. Where they differ, the laxer one counts: what some API server keeps must be readable from its dump.
`STRICTER` in tests/e2e/test_validation.py names what is refused here and not there.
"""

__all__ = ["claims", "objects"]
