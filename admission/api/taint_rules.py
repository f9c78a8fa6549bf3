"""DeviceTaintRules: taints that administrators put on devices (resource.k8s.io/v1, v1beta2 before 1.37)."""

from dataclasses import dataclass

from admission.api import meta, selectors
from admission.api.devices import DeviceId
from admission.api.meta import Meta
from admission.api.reading import Json, Reader
from admission.api.selectors import Taint


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule:
    """A DeviceTaintRule. driver, pool, device: None where the selector leaves them open.

    selects: whether there is a selector at all. Without one a rule matches nothing in 1.37, and every device in 1.36.
    """

    meta: Meta
    taint: Taint
    selects: bool = True
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def matches(self, device: DeviceId) -> bool:
        """Return whether the selector, if there is one, picks the device."""
        wanted = ((self.driver, device.driver), (self.pool, device.pool), (self.device, device.device))
        return all(name is None or name == has for name, has in wanted)


def decode(obj: Json) -> TaintRule:
    """Read a DeviceTaintRule."""
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
