"""DeviceTaintRules: taints that administrators put on devices (resource.k8s.io/v1, v1beta2 before 1.37).

Muster's own rules are fences: the taint of a driver's devices that no claim tolerates, so that kube-scheduler does not
allocate them.
"""

from dataclasses import dataclass

from admission.api.kubernetes import meta
from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.meta import Meta
from admission.api.values import selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.selectors import Taint

FENCE = Taint(key="muster.dev/fence", value="Muster", effect="NoSchedule")
"""The taint of every fence. NoSchedule does not affect existing allocations."""

_FENCE_NAME = "muster-fence-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule:
    """A DeviceTaintRule. driver, pool, device: None where the selector does not restrict them.

    selects: whether the rule has a selector. Without one it matches no device in 1.37, and every device in 1.36.
    """

    meta: Meta
    taint: Taint
    selects: bool = True
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def matches(self, device: DeviceId) -> bool:
        """Return whether the selector matches the device; True without a selector (see `selects`)."""
        pairs = ((self.driver, device.driver), (self.pool, device.pool), (self.device, device.device))
        return all(wanted is None or wanted == actual for wanted, actual in pairs)


def fence_name(driver: str) -> str:
    """Return the name of the rule that fences a driver's devices."""
    return f"{_FENCE_NAME}{driver}"


def fenced_driver(rule: TaintRule) -> str | None:
    """Return the driver that a rule fences, by its name and its taint's key; None for a rule that is no fence."""
    is_fence = rule.meta.name.startswith(_FENCE_NAME) and rule.taint.key == FENCE.key
    return rule.meta.name.removeprefix(_FENCE_NAME) if is_fence else None


def decode(obj: Json) -> TaintRule:
    """Decode a DeviceTaintRule."""
    reader = Reader(obj)
    spec = reader.child("spec")
    selector = spec.child("deviceSelector")
    result = TaintRule(
        meta=meta.decode(reader),
        taint=selectors.decode_taint(spec.child("taint")),
        selects="deviceSelector" in spec,
        driver=selector.optional("driver"),
        pool=selector.optional("pool"),
        device=selector.optional("device"),
    )
    reader.finish("DeviceTaintRule", result.meta.key)
    return result
