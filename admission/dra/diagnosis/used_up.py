"""Which counter, or which capacity of a shared device, is used up: how much is needed and left, and by whose use."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from admission.api.kubernetes.devices import DeviceId
from admission.dra.allocator.results import Failure
from admission.dra.diagnosis.node_dead_end import NodeDeadEnd
from admission.dra.diagnosis.rule_refusals import names_text
from admission.dra.equivalence.device_signature import DeviceSignature
from admission.dra.inventory.counters import Amount, SharedCounters
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.requests.capacity import written
from admission.dra.requests.device_use import DeviceUse, Share
from admission.dra.requests.requests import Option
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What a device needs and has not. missing: how much; devices: those whose use leaves too little."""

    text: str
    missing: Amount
    devices: tuple[DeviceId, ...]


def shortage(stuck: NodeDeadEnd, cluster: ClusterState, uses: Sequence[DeviceUse]) -> Shortage | None:
    """Return the counter or capacity that a device lacks which nothing else keeps from the request that got stuck.

    uses: what the pods placed before have taken.
    """
    reasons, own = stuck.dead_end.reasons, [*stuck.own()]
    found: list[Shortage | None] = []
    for option in stuck.request.options:
        if Failure.COUNTERS in reasons:
            mine = [device for _, device, signature in own if not signature.shared]
            taken = {*cluster.taken, *(use.device for use in uses if not use.shared), *mine}
            found.append(_of_counters(stuck, option, taken, mine))
        if Failure.CAPACITY in reasons:
            shares = {device: [one.share for one in known] for device, known in cluster.shares.items()}
            for use in uses:
                shares.setdefault(use.device, []).append(use.share)
            for given, device, signature in own:
                number = stuck.device_signatures.parsed_requests[given.parsed]
                shares.setdefault(device, []).append(signature.consumed(number))
            found.append(_of_capacity(stuck, option, shares))
    return next((one for one in found if one is not None), None)


def _of_counters(
    stuck: NodeDeadEnd, option: Option, taken: Collection[DeviceId], own: Collection[DeviceId]
) -> Shortage | None:
    """Return the smallest shortage of a counter among the devices that match and are free. taken: devices in use."""
    found = (
        short
        for segment, listed, signature in stuck.matching(option)
        if segment.pool.counter_set is not None and signature.draw and listed.id not in taken
        if stuck.joins(option, signature)
        for short in _short(listed, signature, segment.pool.counter_set, taken, own)
    )
    return min(found, key=lambda short: short.missing, default=None)


def _short(
    listed: InventoryDevice,
    signature: DeviceSignature,
    counter_set: SharedCounters,
    taken: Collection[DeviceId],
    own: Collection[DeviceId],
) -> Iterator[Shortage]:
    """Yield the first counter of which a device draws more than is left. own: those of `taken` that the pod gets."""
    users = [device for device in counter_set.draws if device in taken]
    left = dict(zip(counter_set.totals, counter_set.available(users), strict=True))
    for counter, amount in signature.draw or ():
        if counter in left and left[counter] < amount:
            name = "/".join(counter)
            drawing = tuple(one for one in users if counter in dict(counter_set.draws[one]))
            mine = [str(one) for one in drawing if one in own]
            beside = f" beside {names_text(mine)}, which the pod gets as well" if mine else ""
            yield Shortage(
                text=(
                    f"{listed.id} draws {_text(amount)} of counter {name}, of which {_text(left[counter])} of"
                    f" {_text(counter_set.totals[counter])} are left{beside}"
                ),
                missing=amount - left[counter],
                devices=drawing,
            )
            return


def _of_capacity(stuck: NodeDeadEnd, option: Option, shares: Mapping[DeviceId, Sequence[Share]]) -> Shortage | None:
    """Return the smallest shortage of a capacity among the shared devices that match. shares: those in use."""
    number = stuck.device_signatures.parsed_requests[option.parsed]
    found: list[Shortage] = []
    for _, listed, signature in stuck.matching(option):
        used = [share or {} for share in shares.get(listed.id, ())]
        for name, needed in signature.consumed(number).items():
            total = dict(signature.room)[name]
            left = total - sum(share.get(name, 0) for share in used)
            if left < needed and stuck.joins(option, signature):
                silent = "" if name in dict(option.parsed.needs) else ", since the request does not say how much"
                text = (
                    f"a share takes {_text(needed)} of capacity {name} of {listed.id}{silent}, and {_text(left)} of"
                    f" {_text(total)} are left"
                )
                found.append(Shortage(text=text, missing=needed - left, devices=(listed.id,)))
                break
    return min(found, key=lambda short: short.missing, default=None)


def _text(amount: Amount) -> str:
    return written(Fraction(amount))
