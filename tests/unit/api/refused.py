"""Objects of resource.k8s.io that differ from a good one in one thing that Kubernetes refuses, and the field at fault.

The unit tests judge them by our rules; tests/e2e/test_validation.py sends the same ones to a real API server.
"""

from typing import Any

from tests.unit.api import claims, slices
from tests.unit.api.cases import Case, Json, an_object, with_


def rule(selector: Any = None, **changes: Any) -> Json:
    taint = with_({"key": "unhealthy", "effect": "NoExecute"}, changes)
    return an_object("DeviceTaintRule", with_({"deviceSelector": selector, "taint": taint}, {}))


RULES = {
    "a rule's taint without a key": Case(rule(key=None), "spec.taint.key"),
    "an unknown effect of a rule": Case(rule(effect="Never"), "spec.taint.effect"),
    "a rule for a driver that is none": Case(rule({"driver": "a_b"}), "spec.deviceSelector.driver"),
    "a rule for a pool that is none": Case(rule({"pool": "a//b"}), "spec.deviceSelector.pool"),
    "a rule for a device that is none": Case(rule({"device": "gpu.0"}), "spec.deviceSelector.device"),
    "a rule for a device without a name": Case(rule({"device": ""}), "spec.deviceSelector.device"),
}

REFUSED = claims.CLAIMS | claims.TEMPLATES | claims.CLASSES | slices.SLICES | RULES
"""What Kubernetes refuses, and we do."""

CEL = claims.CEL
"""Refused where CEL is compiled."""

STRICTER = claims.STRICTER | slices.STRICTER
"""What Kubernetes takes and we refuse: it would be read as something else than it says, or as nothing at all."""

GOOD = (
    claims.GOOD
    | slices.GOOD
    | {
        "a rule": rule({"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}, value="b"),
        "a rule for nothing in particular": rule(),
    }
)
"""What Kubernetes takes, and we do."""
