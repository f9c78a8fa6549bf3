"""Whether a fence is heeded: devices behind one that somebody else than Muster has given to a claim.

That the API server keeps a DeviceTaintRule does not prove that kube-scheduler acts on it: 1.37 serves them even where
the feature gate is off, and nobody can ask kube-scheduler. What it does shows. A fence that was breached once does not
count for the rest of a leader's term: who mends it restarts Muster.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What was seen so far. claims: as they were last looked at; drivers: whose fences counted from then on.

    breaches: by driver, who has got which device.
    """

    claims: Mapping[str, Claim] = field(default_factory=dict)
    drivers: frozenset[str] = frozenset()
    breaches: Mapping[str, str] = field(default_factory=dict)


def look(watch: Watch, snapshot: Snapshot, booked: Collection[Uid]) -> Watch:
    """Return what is seen now. booked: the claims that the ledger has open."""
    if not watch.drivers:
        return replace(watch, claims=snapshot.claims)
    found = dict(watch.breaches)
    for key, claim in snapshot.claims.items():
        before = watch.claims.get(key)
        if before is claim or claim.allocation is None or claim.meta.uid in booked:
            continue
        if names.PLACEMENT in claim.meta.annotations or (before is not None and before.allocation is not None):
            continue
        for device in _taken(claim):
            if device.driver in watch.drivers:
                found.setdefault(device.driver, f"ResourceClaim {key} has device {device}")
    return replace(watch, claims=snapshot.claims, breaches=found)


def _taken(claim: Claim) -> list[DeviceId]:
    """Return the devices that a claim takes from others, as one with admin access does not."""
    results = claim.allocation.devices if claim.allocation is not None else ()
    return [result.device for result in results if not result.admin_access]
