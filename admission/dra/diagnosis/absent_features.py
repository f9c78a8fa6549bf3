"""Features of DRA that a cluster's release does not have as it comes, and that objects ask for all the same.

Their API server drops the fields of such features without a word, and serves no DeviceTaintRules: a claim for a part of
a device gets the whole of it there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.devices import Slice
from admission.api.snapshot import Snapshot
from admission.dra.compatibility import SchedulerProfile

NAMES: Mapping[str, str] = {
    "partitionable": "partitionable devices",
    "taints": "device taints",
    "binding_conditions": "binding conditions",
    "consumable_capacity": "consumable capacity, shared devices and distinctAttribute",
    "extended_resources": "extended resources backed by devices",
}
"""What some releases have on by default and others do not, by field of `compatibility.Features` (docs/devices.md)."""

MOST_NAMED = 3


def absent(profile: SchedulerProfile) -> tuple[str, ...]:
    """Return the fields of `compatibility.Features` that are off and in `NAMES`."""
    return tuple(name for name in NAMES if not getattr(profile.features, name))


def notes(snapshot: Snapshot, profile: SchedulerProfile) -> Iterator[str]:
    """Yield a sentence for each absent feature that an object asks for."""
    off = absent(profile)
    if not off:
        return
    found: dict[str, list[str]] = defaultdict(list)
    for feature, user in _uses(snapshot):
        found[feature].append(user)
    for feature in off:
        if users := list(dict.fromkeys(found[feature])):
            others = f" and {len(users) - MOST_NAMED} more" if len(users) > MOST_NAMED else ""
            yield (
                f"{NAMES[feature]}: off in a Kubernetes {profile.release} as it comes, which drops or does not serve"
                f" what is said of them by {', '.join(users[:MOST_NAMED])}{others}"
            )


def _uses(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield each feature with an object that asks for it."""
    for name in snapshot.taint_rules:
        yield "taints", f"DeviceTaintRule {name}"
    for slice_ in snapshot.slices.values():
        yield from ((feature, f"ResourceSlice {slice_.meta.name}") for feature in _of_slice(slice_))
    for device_class in snapshot.classes.values():
        if device_class.extended_resource is not None:
            yield "extended_resources", f"DeviceClass {device_class.meta.name}"
    for template in snapshot.templates.values():
        yield from ((feature, f"ResourceClaimTemplate {template.meta.key}") for feature in _of_claim(template.spec))
    for claim in snapshot.claims.values():
        yield from ((feature, f"ResourceClaim {claim.meta.key}") for feature in _of_claim(claim.spec))


def _of_slice(slice_: Slice) -> Iterable[str]:
    if slice_.counters or any(device.consumes for device in slice_.devices):
        yield "partitionable"
    for device in slice_.devices:
        if device.taints:
            yield "taints"
        if device.binding_conditions or device.binding_failures or device.binds_to_node:
            yield "binding_conditions"
        if device.allows_multiple or any(one.policy is not None for one in device.capacity.values()):
            yield "consumable_capacity"


def _of_claim(spec: ClaimSpec) -> Iterable[str]:
    if any(constraint.distinct is not None for constraint in spec.constraints):
        yield "consumable_capacity"
    for request in spec.requests:
        for one in request.alternatives:
            if one.capacity is not None:
                yield "consumable_capacity"
            if one.tolerations:
                yield "taints"
