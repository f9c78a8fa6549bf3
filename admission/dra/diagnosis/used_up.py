"""Which counter, or which capacity of a shared device, is used up: how much is needed and left, and by whose use."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from admission.api.kubernetes.devices import DeviceId
from admission.dra.diagnosis.no_devices import written
from admission.dra.equivalence.device_signature import Answer, DeviceSignature, DeviceSignatures, Layout, Segment
from admission.dra.inventory.counters import Amount, SharedCounters
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.requests.device_use import Share
from admission.dra.requests.requests import ParsedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What a device needs and has not. missing: how much; devices: those whose use leaves too little."""

    text: str
    missing: Amount
    devices: tuple[DeviceId, ...]


def of_counters(
    layout: Layout, parsed: ParsedRequest, device_signatures: DeviceSignatures, taken: Collection[DeviceId]
) -> Shortage | None:
    """Return the smallest shortage of a counter among the devices that match and are free. taken: devices in use."""
    found = (
        shortage
        for segment, listed, signature in _matching(layout, parsed, device_signatures)
        if segment.pool.counter_set is not None and signature.draw and listed.id not in taken
        for shortage in _short(listed, signature, segment.pool.counter_set, taken)
    )
    return min(found, key=lambda shortage: shortage.missing, default=None)


def _short(
    listed: InventoryDevice, signature: DeviceSignature, counter_set: SharedCounters, taken: Collection[DeviceId]
) -> Iterator[Shortage]:
    """Yield the first counter of which a device draws more than is left."""
    users = [device for device in counter_set.draws if device in taken]
    left = dict(zip(counter_set.totals, counter_set.available(users), strict=True))
    for counter, amount in signature.draw or ():
        if counter in left and left[counter] < amount:
            name = "/".join(counter)
            yield Shortage(
                text=(
                    f"{listed.id} draws {_text(amount)} of counter {name}, of which {_text(left[counter])} of"
                    f" {_text(counter_set.totals[counter])} are left"
                ),
                missing=amount - left[counter],
                devices=tuple(one for one in users if counter in dict(counter_set.draws[one])),
            )
            return


def of_capacity(
    layout: Layout,
    parsed: ParsedRequest,
    device_signatures: DeviceSignatures,
    shares: Mapping[DeviceId, Iterable[Share]],
) -> Shortage | None:
    """Return the smallest shortage of a capacity among the shared devices that match. shares: those in use."""
    number = device_signatures.parsed_requests[parsed]
    found: list[Shortage] = []
    for _, listed, signature in _matching(layout, parsed, device_signatures):
        used = [share or {} for share in shares.get(listed.id, ())]
        for name, needed in signature.consumed(number).items():
            total = dict(signature.room)[name]
            left = total - sum(share.get(name, 0) for share in used)
            if left < needed:
                silent = "" if name in dict(parsed.needs) else ", since the request does not say how much"
                text = (
                    f"a share takes {_text(needed)} of capacity {name} of {listed.id}{silent}, and {_text(left)} of"
                    f" {_text(total)} are left"
                )
                found.append(Shortage(text=text, missing=needed - left, devices=(listed.id,)))
                break
    return min(found, key=lambda shortage: shortage.missing, default=None)


def _matching(
    layout: Layout, parsed: ParsedRequest, device_signatures: DeviceSignatures
) -> Iterator[tuple[Segment, InventoryDevice, DeviceSignature]]:
    number = device_signatures.parsed_requests[parsed]
    for segment, _ in layout.parts:
        for listed, at in zip(segment.listed_devices, segment.numbers, strict=True):
            signature = device_signatures.known[at]
            if signature.answers[number] is Answer.YES:
                yield segment, listed, signature


def _text(amount: Amount) -> str:
    return written(Fraction(amount))
