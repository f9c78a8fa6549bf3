"""A dead end of the search for devices on one node: the devices that match there, and what constraints say of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.devices import DeviceId
from admission.dra.allocator.results import DeadEnd, Pick
from admission.dra.equivalence.device_signature import Answer, DeviceSignature, DeviceSignatures, Layout, Segment
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.requests import constraints
from admission.dra.requests.constraints import UNREADABLE, Rule, Value
from admission.dra.requests.requests import Option, ParsedClaim, RequestAlternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeadEnd:
    """Where the search got stuck. visible: the places in the layout of the devices that the search numbers."""

    dead_end: DeadEnd
    claims: Sequence[ParsedClaim]
    layout: Layout
    visible: Sequence[int]
    device_signatures: DeviceSignatures

    @property
    def request(self) -> RequestAlternatives:
        return self._claim.requests[self.dead_end.request]

    @property
    def _claim(self) -> ParsedClaim:
        return self.claims[self.dead_end.claim]

    def device(self, at: int) -> DeviceId:
        """Return a device by its number in the search."""
        return self.layout.listed_devices[self.visible[at]].id

    def own(self) -> Iterator[tuple[Option, DeviceId, DeviceSignature]]:
        """Yield the devices that the pod had by then, each with the option that it is for."""
        for claim, picks in zip(self.claims, self.dead_end.picked, strict=False):
            for pick in picks:
                yield claim.requests[pick.request].options[pick.option], self.device(pick.at), self._signature(pick)

    def matching(self, option: Option) -> Iterator[tuple[Segment, InventoryDevice, DeviceSignature]]:
        """Yield the devices that match an option, in use or not."""
        number = self.device_signatures.parsed_requests[option.parsed]
        for segment, _ in self.layout.parts:
            for listed, at in zip(segment.listed_devices, segment.numbers, strict=True):
                signature = self.device_signatures.known[at]
                if signature.answers[number] is Answer.YES:
                    yield segment, listed, signature

    def joins(self, option: Option, signature: DeviceSignature) -> bool:
        """Return whether the constraints let a device for an option join those that the claim had by then."""
        picks = self.dead_end.picked[self.dead_end.claim] if self.dead_end.picked else ()
        return all(self._adds(rule, picks, signature) for rule in self._rules(option))

    def unsatisfied(self, option: Option) -> str:
        """Return which constraint no choice of the matching devices satisfies for an option alone; empty if none."""
        if not option.plain:
            return ""
        known = [signature for _, _, signature in self.matching(option)]
        texts = (
            self._too_few(rule, option.count, [self._value(rule, one) for one in known]) for rule in self._rules(option)
        )
        return next(filter(None, texts), "")

    @staticmethod
    def _too_few(rule: Rule, needed: int, values: Sequence[Value | None]) -> str:
        named = [value for value in values if value is not None]
        if not named:
            return f"none of the {len(values)} that match has {rule.attribute}"
        # Lists may have a value in common with several others, and what cannot be compared is another fault.
        if any(value == UNREADABLE or isinstance(value[1], frozenset) for value in named):
            return ""
        groups = Counter(named)
        if rule.distinct:
            most, text = len(groups), "differ in"
        else:
            most, text = max(groups.values()), "have the same"
        return f"no more than {most} of the {len(values)} that match {text} {rule.attribute}" if most < needed else ""

    def _rules(self, option: Option) -> Iterator[Rule]:
        return (rule for rule in self._claim.rules if rule.binds(self.request.name, option.name))

    def _adds(self, rule: Rule, picks: Sequence[Pick], signature: DeviceSignature) -> bool:
        running = constraints.running(rule, self.device_signatures.need.profile)
        for pick in picks:
            request = self._claim.requests[pick.request]
            if rule.binds(request.name, request.options[pick.option].name):
                running.add(self._value(rule, self._signature(pick)), request.name)
        return running.add(self._value(rule, signature), self.request.name)

    def _value(self, rule: Rule, signature: DeviceSignature) -> Value | None:
        return signature.values[self.device_signatures.attributes[rule.attribute]]

    def _signature(self, pick: Pick) -> DeviceSignature:
        return self.device_signatures.known[self.layout.numbers[self.visible[pick.at]]]
