"""What pods request of nodes beside each device that they ask for, in the mean over those that wait and run.

The planner strands fewer devices by it (`dra.allocator.stranded_devices`). It follows the snapshot: only pods and
claims that changed are read again; a replay, which knows every change, adds the pods of jobs. Amounts are rounded to
three significant bits, so that the mean is mostly what it was.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from admission.api.kubernetes.claims import ALL, Claim, ClaimSpec, DeviceRequest
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot, changed
from admission.api.values.names import Uid

RESOURCES = ("cpu", "memory")
"""The resources that are looked at: those that every node has, and that pods mostly request."""

Capacity = tuple[tuple[str, Fraction], ...]
"""What a request asks for of the capacity of a shared device, by name; empty for a whole one."""


class DeviceCompanions:
    """The mean of one cluster. One per leader or replay; only `update` and `add` change it."""

    def __init__(self) -> None:
        self._pods: Mapping[Uid, Pod] = {}
        self._claims: Mapping[str, Claim] = {}
        self._slices: Mapping[str, Slice] = {}
        self._read_slices: Mapping[str, Slice] = {}
        """Those of which `_largest` is."""
        self._requested: Counter[str] = Counter()
        self._devices: Counter[Capacity] = Counter()
        self._largest: dict[str, Fraction] = {}
        """By name of a capacity, the most that any device has."""

    def update(self, snapshot: Snapshot) -> Resources:
        """Return the means, of the resources of which something is requested; empty where no device is asked for."""
        for uid in changed(self._pods, snapshot.pods):
            for pods, sign in ((self._pods, -1), (snapshot.pods, 1)):
                pod = pods.get(uid)
                if pod is not None and pod.claims and not pod.finished:
                    self._count_requests(pod.requests, sign)
        for key in changed(self._claims, snapshot.claims):
            for claims, sign in ((self._claims, -1), (snapshot.claims, 1)):
                if key in claims:
                    self._count_devices(claims[key].spec, sign)
        self._pods, self._claims, self._slices = snapshot.pods, snapshot.claims, snapshot.slices
        return self.means()

    def add(self, requests: Resources, claims: Iterable[ClaimSpec], *, pods: int) -> None:
        """Count pods that no snapshot has, each with claims of its own; if `pods` is negative, count them no more."""
        specs = tuple(claims)
        if specs:
            self._count_requests(requests, pods)
        for spec in specs:
            self._count_devices(spec, pods)

    def means(self) -> Resources:
        """Return the means, as `update` does."""
        if any(self._devices) and changed(self._read_slices, self._slices):
            self._read_slices, self._largest = self._slices, _largest(self._slices)
        devices = sum((count * self._part(capacity) for capacity, count in self._devices.items()), Fraction(0))
        if not devices:
            return {}
        means = {name: _rounded(int(amount / devices)) for name, amount in sorted(self._requested.items())}
        return {name: mean for name, mean in means.items() if mean}

    def _count_requests(self, requests: Resources, pods: int) -> None:
        for name in RESOURCES:
            if amount := requests.get(name, 0):
                self._requested[name] += pods * amount

    def _count_devices(self, spec: ClaimSpec, claims: int) -> None:
        for capacity, count in _devices(spec):
            self._devices[capacity] += claims * count
            if not self._devices[capacity]:
                del self._devices[capacity]

    def _part(self, capacity: Capacity) -> Fraction:
        """Return the part of a device that a request takes: of the scarcest capacity of the largest device."""
        parts = (amount / self._largest[name] for name, amount in capacity if self._largest.get(name))
        return min(Fraction(1), max(parts, default=Fraction(1)))


def _devices(spec: ClaimSpec) -> Iterator[tuple[Capacity, int]]:
    """Yield how many devices a claim asks for, by the first alternative of each request."""
    for request in spec.requests:
        first = request.alternatives[0]
        if not first.admin_access:
            yield _capacity(first), 1 if first.mode == ALL else first.count


def _capacity(request: DeviceRequest) -> Capacity:
    return tuple(sorted((request.capacity or {}).items()))


def _largest(slices: Mapping[str, Slice]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for slice_ in slices.values():
        for device in slice_.devices:
            if device.allows_multiple:
                for name, one in device.capacity.items():
                    found[name] = max(found.get(name, Fraction(0)), Fraction(one.value))
    return found


def _rounded(amount: int) -> int:
    """Return the nearest number of three significant bits."""
    unit = 1 << max(0, amount.bit_length() - 3)
    return (amount + unit // 2) // unit * unit
