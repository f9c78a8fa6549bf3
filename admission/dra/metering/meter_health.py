"""The health of meters: whether they can price the devices that exist, before a gang requests these.

CEL may compile and still fail on some devices; the failure is shown in the Meter's status. `check` evaluates every
device once, a bounded number per call, and a slice again only when it, the meters or the classes have changed. Once all
were evaluated, only pools with a slice that changed are looked at. It is a function of its arguments: call it off the
event loop, once per cycle, with its previous result. A bound on the work of each call is what a declaration over
`admission.incremental` does not have.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from admission.api.kubernetes.devices import DeviceClass, DeviceId, Slice
from admission.api.snapshot import changed
from admission.api.values.names import MeterName
from admission.dra.inventory.pools import InventoryDevice, PoolId
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import ChargeError, Meters

MOST = 1_000
"""About how many devices one call evaluates; a slice is evaluated as a whole."""

Failures = Mapping[MeterName, ChargeError]
"""By meter that cannot count some device: the error on the first such device."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeterHealth:
    """The result so far. seen: by slice key, the evaluated slice and what failed there. left: slices not evaluated."""

    meters: Meters = device_meters.NONE
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    slices: Mapping[str, Slice] = field(default_factory=dict)
    seen: Mapping[str, tuple[Slice, Failures]] = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)
    left: int = 0


NOTHING = MeterHealth()
"""The result before any slice is evaluated."""


def check(
    meters: Meters,
    slices: Mapping[str, Slice],
    classes: Mapping[str, DeviceClass],
    *,
    selectors: Selectors,
    before: MeterHealth = NOTHING,
    most: int = MOST,
) -> MeterHealth:
    """Return which meters fail on which devices, evaluating about `most` devices; the next call continues."""
    same = before.meters is meters and before.classes is classes
    if same and before.slices is slices and not before.left:
        return before
    known = before.seen if same else {}
    seen: dict[str, tuple[Slice, Failures]] = {}
    wanted = slices
    if same and not before.left:
        keys = changed(before.slices, slices)
        wanted = _of_pools(keys, before.slices, slices)
        seen = {**known}
        for key in (*keys, *wanted):
            seen.pop(key, None)
    left = inspected = 0
    doubtful = _doubtful(meters)
    for key, slice_ in _newest(wanted):
        found = known.get(key)
        if found is not None and found[0] is slice_:
            seen[key] = found
        elif inspected < most:
            seen[key] = (slice_, _failures(slice_, meters, doubtful, classes, selectors))
            inspected += len(slice_.devices) if doubtful else 0
        else:
            left += 1
    return MeterHealth(meters=meters, classes=classes, slices=slices, seen=seen, failures=_first(seen), left=left)


def _of_pools(keys: Iterable[str], before: Mapping[str, Slice], slices: Mapping[str, Slice]) -> dict[str, Slice]:
    """Return all slices of the pools of these slices: one that changed may replace the others, or no longer do so."""
    known = (some.get(key) for key in keys for some in (before, slices))
    pools = {(one.driver, one.pool) for one in known if one is not None}
    return {key: one for key, one in slices.items() if (one.driver, one.pool) in pools} if pools else {}


def _first(seen: Mapping[str, tuple[Slice, Failures]]) -> Failures:
    """Return the failure of each meter on the first slice, by name, on which it fails."""
    found: dict[MeterName, ChargeError] = {}
    for key in sorted(key for key, (_, failures) in seen.items() if failures):
        for name, failure in seen[key][1].items():
            found.setdefault(name, failure)
    return found


def _doubtful(meters: Meters) -> tuple[tuple[MeterName, str], ...]:
    """Return the pairs of meter and class whose devices have to be evaluated one by one."""
    return tuple(
        (name, device_class)
        for name, meter in meters.meters.items()
        if name not in meters.problems
        for device_class in sorted(meter.classes)
        if not meters.certain(name, device_class)
    )


def _newest(slices: Mapping[str, Slice]) -> Iterator[tuple[str, Slice]]:
    """Yield slices in order of names, without those that a newer generation of their pool has replaced."""
    newest: dict[PoolId, int] = {}
    for slice_ in slices.values():
        pool = (slice_.driver, slice_.pool)
        newest[pool] = max(slice_.generation, newest.get(pool, slice_.generation))
    for key, slice_ in sorted(slices.items()):
        if slice_.generation == newest[slice_.driver, slice_.pool]:
            yield key, slice_


def _failures(
    slice_: Slice,
    meters: Meters,
    doubtful: tuple[tuple[MeterName, str], ...],
    classes: Mapping[str, DeviceClass],
    selectors: Selectors,
) -> dict[MeterName, ChargeError]:
    found: dict[MeterName, ChargeError] = {}
    for name, device_class in doubtful:
        wanted = classes.get(device_class)
        if wanted is None or name in found:
            continue
        for listed in _listed_devices(slice_):
            # A device that the class's own selectors refuse or fail on is never given for it, so no meter counts it.
            if selectors.answer(wanted.selectors, listed) is not True:
                continue
            failure = device_meters.failure(meters, name, device_class, listed.id, listed.device)
            if failure is not None:
                found[name] = failure
                break
    return found


def _listed_devices(slice_: Slice) -> Iterator[InventoryDevice]:
    for at, device in enumerate(slice_.devices):
        device_id = DeviceId(slice_.driver, slice_.pool, device.name)
        yield InventoryDevice(id=device_id, device=device, slice=slice_, at=at, local=True, reachable=True)
