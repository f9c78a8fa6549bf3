"""What pods request of nodes beside each device that they ask for, in the mean over those that wait and run.

The planner strands fewer devices by it (`dra.allocator.stranded_devices`). It follows the snapshot: only pods and
claims that changed are read again; a replay, which knows every change, adds the pods of jobs. A claim counts once, as
long as a pod uses it that has not ended, since the requests of that pod count as long. Amounts are rounded to
three significant bits, so that the mean is mostly what it was.

A share counts as its part of the largest device that is shared. A request for partitions counts each as a part of its
device, as `dra.inventory.counters.part` has it: of those that its selectors match, the smallest in the first slice with
one.

Claims that tie several devices of a class by `matchAttribute` count as kinds of use, each with the part of all devices
that it asks for (`dra.equivalence.tied_devices`); so do the sets of selectors of requests (`device_selections`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from admission.api.kubernetes.claims import ALL, Claim, ClaimSpec
from admission.api.kubernetes.devices import Device, DeviceClass, Slice
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot, changed
from admission.api.values.names import Uid
from admission.dra.inventory import counters
from admission.dra.inventory.counters import Draw
from admission.dra.inventory.selectors import Selectors, Texts, joined
from admission.dra.requests import kinds_of_use
from admission.dra.requests.kinds_of_use import KindsOfUse, Selection, Tie, Ties
from admission.scheduling.cache.device_selections import DeviceSelections

RESOURCES = ("cpu", "memory")
"""The resources that are looked at: those that every node has, and that pods mostly request."""

MOST_KINDS = 64
"""The most sorts of requests of which it is looked up which partitions they match; those of the rest count as whole."""


MOST_SLICES = 256
"""The most slices, by name, in which it is looked up."""


class Kind(NamedTuple):
    """What matters of a request. capacity: what it asks for of a shared device, by name; empty for a whole one."""

    device_class: str
    selectors: tuple[str, ...]
    capacity: tuple[tuple[str, Fraction], ...]


class _Tied(NamedTuple):
    """So many devices that a claim wants with one value of an attribute."""

    attribute: str
    device_class: str
    selectors: tuple[str, ...]
    devices: int


class _Partitions(NamedTuple):
    """A slice with partitions. totals: of its pool's counter sets. parts: which of its device each is; 0 for others."""

    slice: Slice
    totals: Mapping[str, Draw]
    parts: tuple[Fraction, ...]


class DeviceCompanions:
    """The mean of one cluster. One per leader or replay; only `update` and `add` change it."""

    def __init__(self) -> None:
        self._pods: Mapping[Uid, Pod] = {}
        self._claims: Mapping[str, Claim] = {}
        self._users: Counter[str] = Counter()
        """By claim, how many pods that have not ended use it."""
        self._counted: dict[str, ClaimSpec] = {}
        """By claim, what is counted of it."""
        self._slices: Mapping[str, Slice] = {}
        self._read_slices: Mapping[str, Slice] = {}
        """Those of which `_largest` is."""
        self._requested: Counter[str] = Counter()
        self._devices: Counter[Kind] = Counter()
        self._tied: Counter[_Tied] = Counter()
        """How many claims want each."""
        self._largest_by_slice: dict[str, dict[str, Fraction]] = {}
        """By name of a capacity, the most that any shared device of the slice has."""
        self._largest: dict[str, Fraction] = {}
        """The most that any device has."""
        self._with_partitions: set[str] = set()
        """The slices with partitions."""
        self._partitions: dict[str, _Partitions] = {}
        """The first slices with partitions, in order."""
        self._classes: Mapping[str, DeviceClass] = {}
        self._selections = DeviceSelections()
        self._parts: dict[Kind, Fraction] = {}
        """Of requests, which part of a device they match in these slices, with these classes."""

    def update(self, snapshot: Snapshot, selectors: Selectors) -> Resources:
        """Return the means, of the resources of which something is requested; empty where no device is asked for."""
        touched = {*changed(self._claims, snapshot.claims)}
        for uid in changed(self._pods, snapshot.pods):
            for pods, sign in ((self._pods, -1), (snapshot.pods, 1)):
                pod = pods.get(uid)
                if pod is not None and pod.claims and not pod.finished:
                    self._count_requests(pod.requests, sign)
                    touched |= self._count_users(pod, sign)
        for key in touched:
            claim = snapshot.claims.get(key) if key in self._users else None
            before, after = self._counted.pop(key, None), None if claim is None else claim.spec
            for spec, sign in ((before, -1), (after, 1)):
                if spec is not None:
                    self._count_devices(spec, sign)
            if after is not None:
                self._counted[key] = after
        self._pods, self._claims, self._slices = snapshot.pods, snapshot.claims, snapshot.slices
        if self._classes is not snapshot.classes:
            self._classes, self._parts = snapshot.classes, {}
        return self.means(selectors)

    def add(self, requests: Resources, claims: Iterable[ClaimSpec], *, pods: int) -> None:
        """Count pods that no snapshot has, each with claims of its own; if `pods` is negative, count them no more."""
        specs = tuple(claims)
        if specs:
            self._count_requests(requests, pods)
        for spec in specs:
            self._count_devices(spec, pods)

    def means(self, selectors: Selectors) -> Resources:
        """Return the means, as `update` does."""
        if self._devices:
            self._read()
        # In this order, as there is a bound on what is looked up.
        kinds = sorted(self._devices.items(), key=lambda one: (-one[1], one[0]))
        if self._partitions:
            known = [kind for kind, _ in kinds if not kind.capacity][:MOST_KINDS]
            self._parts = {kind: self._parts.get(kind) or self._partition(kind, selectors) for kind in known}
        devices = sum((count * self._part(kind) for kind, count in kinds), Fraction(0))
        if not devices:
            return {}
        means = {name: _rounded(int(amount / devices)) for name, amount in sorted(self._requested.items())}
        return {name: mean for name, mean in means.items() if mean}

    def kinds_of_use(self, selectors: Selectors) -> KindsOfUse:
        """Return by what else devices are of use to pods, beside the means."""
        return (*self.ties(selectors), *self.selections(selectors))

    def selections(self, selectors: Selectors) -> tuple[Selection, ...]:
        """Return the sets of selectors by which devices are asked for, if some are in more demand than others."""
        asked: defaultdict[Texts, Fraction] = defaultdict(Fraction)
        for kind, count in self._devices.items():
            asked[self._texts(kind.device_class, kind.selectors)] += count * self._part(kind)
        return self._selections.weights(asked, self._slices, selectors)

    def ties(self, selectors: Selectors) -> Ties:
        """Return the kinds of claims that tie devices together, of which those are looked at that ask for the most."""
        devices = self._devices.total()
        found = sorted(self._tied.items(), key=lambda one: (-one[1] * one[0].devices, one[0]))
        if len(found) > kinds_of_use.MOST_TIES:
            # Those of partitions and shared devices make no difference to any node, so they come last.
            found = found[:MOST_KINDS]
            slices = [*islice(_with_whole_devices(self._slices), MOST_SLICES)]
            found.sort(key=lambda one: not any(self._makes_group(one[0], slice_, selectors) for slice_ in slices))
        ties: list[Tie] = []
        for tied, claims in found[: kinds_of_use.MOST_TIES]:
            texts = self._texts(tied.device_class, tied.selectors)
            weight = claims * tied.devices * kinds_of_use.THOUSAND // devices
            if weight >= kinds_of_use.LEAST_WEIGHT:
                # To the nearest power of two, and sorted, so that they are mostly what they were.
                ties.append(Tie(tied.attribute, texts, tied.devices, 1 << (weight * 2 // 3).bit_length()))
        return tuple(sorted(ties))

    def _read(self) -> None:
        """Read the slices that have changed."""
        keys = changed(self._read_slices, self._slices)
        for key in keys:
            one = self._slices.get(key)
            largest = {} if one is None else _largest(one)
            if largest:
                self._largest_by_slice[key] = largest
            else:
                self._largest_by_slice.pop(key, None)
            has_partitions = one is not None and any(device.consumes for device in one.devices)
            (self._with_partitions.add if has_partitions else self._with_partitions.discard)(key)
        if keys:
            self._read_slices, self._largest = self._slices, _most(self._largest_by_slice.values())
            before, first = self._partitions, sorted(self._with_partitions)[:MOST_SLICES]
            self._partitions = _partitions(first, self._slices, before) if first else {}
            if before != self._partitions:
                self._parts = {}

    def _count_requests(self, requests: Resources, pods: int) -> None:
        for name in RESOURCES:
            if amount := requests.get(name, 0):
                self._requested[name] += pods * amount

    def _count_users(self, pod: Pod, pods: int) -> set[str]:
        """Count the users of the claims of a pod, and return these claims."""
        names = (pod.claim_name(claim) for claim in pod.claims)
        keys = {f"{pod.meta.namespace}/{name}" for name in names if name}
        for key in keys:
            self._users[key] += pods
            if not self._users[key]:
                del self._users[key]
        return keys

    def _count_devices(self, spec: ClaimSpec, claims: int) -> None:
        for kind, count in _devices(spec):
            self._devices[kind] += claims * count
            if not self._devices[kind]:
                del self._devices[kind]
        for tied in _tied(spec):
            self._tied[tied] += claims
            if not self._tied[tied]:
                del self._tied[tied]

    def _part(self, kind: Kind) -> Fraction:
        """Return the part of a device that a request takes: of the scarcest capacity of the largest device."""
        if not kind.capacity:
            return self._parts.get(kind, Fraction(1)) if self._partitions else Fraction(1)
        parts = (amount / self._largest[name] for name, amount in kind.capacity if self._largest.get(name))
        return min(Fraction(1), max(parts, default=Fraction(1)))

    def _partition(self, kind: Kind, selectors: Selectors) -> Fraction:
        """Return the part of a device that the partitions are which a request matches; 1 if it matches none."""
        texts = self._texts(kind.device_class, kind.selectors)
        for one in self._partitions.values():
            column = selectors.column(texts, one.slice)
            found = [part for at, part in enumerate(one.parts) if part and column.yes >> at & 1]
            if found:
                return min(found)
        return Fraction(1)

    def _makes_group(self, tied: _Tied, slice_: Slice, selectors: Selectors) -> bool:
        """Return whether some device of a slice that such a claim may have is in a group."""
        selected = selectors.column(self._texts(tied.device_class, tied.selectors), slice_).yes
        lists = selectors.profile.reads_lists
        return any(
            selected >> at & 1 and kinds_of_use.group_of(device, slice_.driver, tied.attribute, lists=lists) is not None
            for at, device in enumerate(slice_.devices)
        )

    def _texts(self, device_class: str, selectors: Texts) -> Texts:
        """Return the texts by which a request of a class selects devices."""
        known = self._classes.get(device_class)
        return joined(known.selectors if known is not None else (), selectors)


def _devices(spec: ClaimSpec) -> Iterator[tuple[Kind, int]]:
    """Yield how many devices a claim asks for, by the first alternative of each request."""
    for request in spec.requests:
        first = request.alternatives[0]
        if not first.admin_access:
            capacity = tuple(sorted((first.capacity or {}).items()))
            yield Kind(first.device_class, first.selectors, capacity), 1 if first.mode == ALL else first.count


def _tied(spec: ClaimSpec) -> Iterator[_Tied]:
    """Yield what a claim ties together, by the first alternative of each request: whole devices, several of a class."""
    for constraint in spec.constraints:
        if constraint.match is None:
            continue
        counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for request in spec.requests:
            first = request.alternatives[0]
            names = {request.name, f"{request.name}/{first.name}"}
            is_bound = not constraint.requests or not names.isdisjoint(constraint.requests)
            if is_bound and first.mode != ALL and not first.admin_access and not first.capacity:
                counts[first.device_class, first.selectors] += first.count
        for (device_class, selectors), count in counts.items():
            if count > 1:
                yield _Tied(constraint.match, device_class, selectors, count)


def _with_whole_devices(slices: Mapping[str, Slice]) -> Iterator[Slice]:
    """Yield the slices with devices that are given out as a whole only, by name."""
    for _, one in sorted(slices.items()):
        if not all(device.allows_multiple or device.consumes for device in one.devices):
            yield one


def _partitions(
    keys: Sequence[str], slices: Mapping[str, Slice], before: Mapping[str, _Partitions]
) -> dict[str, _Partitions]:
    """Return these slices, which have partitions; of those that are as before, what was known."""
    pools = {(slices[key].driver, slices[key].pool) for key in keys}
    sets: dict[tuple[str, str], dict[str, Draw]] = {}
    for one in slices.values():
        for name, amounts in one.counters.items() if (one.driver, one.pool) in pools else ():
            sets.setdefault((one.driver, one.pool), {})[name] = tuple(
                ((name, counter), amount) for counter, amount in sorted(amounts.items())
            )
    found: dict[str, _Partitions] = {}
    for key in keys:
        one, totals = slices[key], sets.get((slices[key].driver, slices[key].pool), {})
        known = before.get(key)
        if known is None or known.slice is not one or known.totals != totals:
            known = _Partitions(one, totals, tuple(_part_of(device, totals) for device in one.devices))
        found[key] = known
    return found


def _part_of(device: Device, totals: Mapping[str, Draw]) -> Fraction:
    """Return the largest part that a device draws of any of its counter sets; 0 if it draws nothing."""
    parts = (
        counters.part(
            tuple(((use.counter_set, counter), amount) for counter, amount in use.counters.items()),
            totals.get(use.counter_set, ()),
        )
        for use in device.consumes
    )
    return min(Fraction(1), max(parts, default=Fraction(0)))


def _largest(slice_: Slice) -> dict[str, Fraction]:
    shared = (device for device in slice_.devices if device.allows_multiple)
    return _most({name: Fraction(one.value) for name, one in device.capacity.items()} for device in shared)


def _most(amounts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = max(found.get(name, Fraction(0)), amount)
    return found


def _rounded(amount: int) -> int:
    """Return the nearest number of three significant bits."""
    unit = 1 << max(0, amount.bit_length() - 3)
    return (amount + unit // 2) // unit * unit
