"""The cost of a gang's pods: the charge for given devices, and a lower bound before devices are known."""

from collections.abc import Sequence

from admission.api.muster.gangs import Charge
from admission.api.muster.meters import AdminAccess
from admission.api.values.names import MeterName
from admission.dra.allocator.results import Pick
from admission.dra.equivalence.device_signature import Answer, DeviceSignatures, Price
from admission.dra.equivalence.node_contents import DeviceGroup
from admission.dra.metering import device_meters, holdings
from admission.dra.planner.pod_groups import Gang, PodKind
from admission.dra.requests.requests import Mode, Option, ParsedClaim


class Pricing:
    """Prices for one gang. Kinds of pods go by their numbers."""

    def __init__(self, gang: Gang, device_signatures: DeviceSignatures) -> None:
        self._gang = gang
        self._device_signatures = device_signatures
        self._parsed = device_signatures.parsed_requests
        meters = device_signatures.need.meters.meters
        self._paid_by_admins = {name for name, meter in meters.items() if meter.admin_access is AdminAccess.CHARGE}
        self._by_nodes = [self._by_node(kind) for kind in gang.kinds]
        self.least = [self._least(kind) for kind in range(len(gang.kinds))]
        """Per kind, the least that a pod costs: its own claims on the cheapest devices, what it asks of its node."""
        shared = {w.shared: w.parsed for kind in gang.kinds for w in kind.wanted[0] if w.shared is not None}
        self.least_shared = {number: self._least_of(parsed) for number, parsed in shared.items()}
        """The least that every shared claim costs."""

    def of_pod(
        self, kind: int, open_: Sequence[int], picks: Sequence[Sequence[Pick]], units: Sequence[DeviceGroup]
    ) -> Charge:
        """Return what a pod costs. open_: places of the claims allocated with it. picks: the devices of each.

        A pod that follows costs nothing yet: it is charged once it is made and planned itself.
        """
        if self._gang.kinds[kind].follows:
            return {}
        total = dict(self._by_nodes[kind])
        for at, found in zip(open_, picks, strict=True):
            for meter, amount in self.of_claim(self._gang.kinds[kind].parsed_requests[at], found, units).items():
                total[meter] = total.get(meter, 0) + amount
        return total

    def of_claim(self, parsed_claim: ParsedClaim, picks: Sequence[Pick], units: Sequence[DeviceGroup]) -> Charge:
        """Return what a claim costs."""
        total: dict[MeterName, int] = {}
        marks: set[device_meters.Mark] = set()
        for pick in picks:
            price = self.of_device(parsed_claim.requests[pick.request].options[pick.option], units[pick.at])
            marks |= price.marks
            for meter, amount in price.amounts:
                total[meter] = total.get(meter, 0) + amount
        for meter, _ in marks:
            total[meter] = total.get(meter, 0) + 1
        return total

    def of_device(self, option: Option, unit: DeviceGroup) -> Price:
        """Return the charged part of a device's price: under admin access, only meters that charge admin access."""
        return self._charged(option, unit.signature.prices[self._parsed[option.parsed]])

    def of_nodes(self, kind: int) -> Charge:
        """Return what every pod of a kind costs for its node's resources, on any node."""
        return self._by_nodes[kind]

    @property
    def is_fixed(self) -> bool:
        """Return whether a pod costs the same on every node and with all devices."""
        return all(self._is_fixed(claim) for claim in self._gang.claims)

    def _is_fixed(self, claim: ParsedClaim) -> bool:
        for request in claim.requests:
            if len(request.options) != 1 or request.options[0].mode is Mode.ALL:
                return False
            parsed = self._parsed[request.options[0].parsed]
            if (
                len(
                    {
                        signature.prices[parsed]
                        for signature in self._device_signatures.known
                        if signature.answers[parsed] is Answer.YES
                    }
                )
                > 1
            ):
                return False
        return True

    def _by_node(self, kind: PodKind) -> Charge:
        if kind.follows:
            return {}
        demand = kind.members[0]
        return holdings.charge(
            self._device_signatures.need.meters, holdings.of_node(demand.pod.requests, demand.by_devices)
        )

    def _charged(self, option: Option, price: Price) -> Price:
        if not option.admin:
            return price
        return Price(
            tuple(part for part in price.amounts if part[0] in self._paid_by_admins),
            frozenset(mark for mark in price.marks if mark[0] in self._paid_by_admins),
        )

    def _least(self, kind: int) -> Charge:
        if self._gang.kinds[kind].follows:
            return {}
        own = (wanted.parsed for wanted in self._gang.kinds[kind].wanted[0] if wanted.shared is None)
        return device_meters.added((self._by_nodes[kind], *(self._least_of(claim) for claim in own)))

    def _least_of(self, claim: ParsedClaim) -> Charge:
        total: dict[MeterName, int] = {}
        marks: set[device_meters.Mark] = set()
        for request in claim.requests:
            ways = [way for option in request.options if (way := self._least_way(option)) is not None]
            if not ways:
                continue
            for meter in set.intersection(*(set(amounts) for amounts, _ in ways)):
                total[meter] = total.get(meter, 0) + min(amounts[meter] for amounts, _ in ways)
            marks |= frozenset.intersection(*(found for _, found in ways))
        for meter, _ in marks:
            total[meter] = total.get(meter, 0) + 1
        return total

    def _least_way(self, option: Option) -> tuple[dict[MeterName, int], frozenset[device_meters.Mark]] | None:
        """Return the least that an option costs, and the marks that it surely has; None if no device matches it."""
        if option.mode is Mode.ALL or option.count <= 0:
            return {}, frozenset()
        parsed = self._parsed[option.parsed]
        prices = [
            self._charged(option, t.prices[parsed])
            for t in self._device_signatures.known
            if t.answers[parsed] is Answer.YES
        ]
        if not prices:
            return None
        meters = {meter for price in prices for meter, _ in price.amounts}
        lowest = {meter: min(dict(price.amounts).get(meter, 0) for price in prices) for meter in meters}
        amounts = {meter: amount * option.count for meter, amount in lowest.items() if amount}
        return amounts, frozenset.intersection(*(price.marks for price in prices))
