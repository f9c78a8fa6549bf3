"""The slices with the taints of DeviceTaintRules, as kube-scheduler reads them from its tracker.

Mirrors `k8s.io/dynamic-resource-allocation/resourceslice/tracker` (v0.36.3 and v0.37.1). A rule without a selector
matches every device in 1.36, and none in 1.37.

What is kept from one cluster state to the next is an immutable part of it, derived from the slices and the rules; it is
no declaration over `admission.incremental` for the reason that `node_index` gives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.kubernetes.devices import Device, DeviceId, Slice
from admission.dra.compatibility import Release


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaintedSlices:
    """Slices by key, with the rules' taints. plain: all slices without them.

    made: per slice with such taints, the slice without and the one with them.
    """

    rules: tuple[TaintRule, ...] = ()
    plain: Mapping[str, Slice] = field(default_factory=dict)
    slices: Mapping[str, Slice] = field(default_factory=dict)
    made: Mapping[str, tuple[Slice, Slice]] = field(default_factory=dict)


def apply_rules(
    slices: Mapping[str, Slice], rules: Mapping[str, TaintRule], release: Release, before: TaintedSlices | None = None
) -> TaintedSlices:
    """Return the slices with the taints of the rules; a slice keeps its identity if it and the rules are unchanged."""
    active = tuple(rule for _, rule in sorted(rules.items()) if rule.selects or release.before_1_37)
    if before is not None and before.plain is slices and before.rules == active:
        return before
    if not active:
        return TaintedSlices(plain=slices, slices=slices)
    known = before.made if before is not None and before.rules == active else {}
    found = dict(slices)
    made: dict[str, tuple[Slice, Slice]] = {}
    for key, slice_ in slices.items():
        remembered = known.get(key)
        after = remembered[1] if remembered is not None and remembered[0] is slice_ else _tainted(slice_, active)
        if after is not slice_:
            made[key] = (slice_, after)
            found[key] = after
    return TaintedSlices(rules=active, plain=slices, slices=found, made=made)


def _tainted(slice_: Slice, rules: Iterable[TaintRule]) -> Slice:
    matching = [rule for rule in rules if rule.driver in (None, slice_.driver) and rule.pool in (None, slice_.pool)]
    devices = tuple(_with_taints(slice_, device, matching) for device in slice_.devices) if matching else ()
    if not devices or all(map(lambda a, b: a is b, devices, slice_.devices)):
        return slice_
    return replace(slice_, devices=devices)


def _with_taints(slice_: Slice, device: Device, rules: Iterable[TaintRule]) -> Device:
    name = DeviceId(slice_.driver, slice_.pool, device.name)
    taints = tuple(rule.taint for rule in rules if rule.matches(name))
    return replace(device, taints=(*device.taints, *taints)) if taints else device
