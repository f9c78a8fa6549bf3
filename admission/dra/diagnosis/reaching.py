"""From whose devices requests can be served at all: the drivers of the devices that match, whatever is in use.

Asked where somebody keeps the devices of some drivers for himself, and a claim is let in without a plan.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.claims import Claim
from admission.api.values.selectors import Toleration
from admission.dra.allocator import node_allocator
from admission.dra.equivalence import device_signature
from admission.dra.equivalence.device_signature import Answer, Traits
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import requests
from admission.dra.requests.requests import Fatal, RequestAsk
from admission.dra.state.cluster_state import World


@dataclass(frozen=True, slots=True)
class Confined:
    """A request that devices of one of the drivers match, and of no other one. claim: its key."""

    claim: str
    request: str
    driver: str


def confined(
    claims: Sequence[Claim],
    drivers: Collection[str],
    world: World,
    *,
    selectors: Selectors,
    tolerates: Callable[[Toleration], bool],
) -> Confined | None:
    """Return the first request that only devices of these drivers match, in none of its alternatives another one.

    A request that nothing matches is not confined, nor one that tolerates what keeps others off the devices. Nothing is
    said of claims that kube-scheduler would give up on.
    """
    asked = node_allocator.compiled(claims, world)
    if isinstance(asked, Fatal):
        return None
    known = device_signature.of(device_signature.Need(requests.asks(asked), profile=world.profile), selectors)
    for claim, one in zip(claims, asked, strict=True):
        for request in one.requests:
            if any(tolerates(toleration) for option in request.options for toleration in option.ask.tolerations):
                continue
            found = _drivers(request, known, world)
            if found and found <= set(drivers):
                return Confined(claim.meta.key, request.name, min(found))
    return None


def _drivers(request: RequestAsk, known: Traits, world: World) -> set[str]:
    """Return the drivers of the devices that match a request."""
    numbers = [known.asks[option.ask] for option in request.options]
    return {driver for driver, answers in _devices(known, world) if any(answers[at] is Answer.YES for at in numbers)}


def _devices(known: Traits, world: World) -> Iterable[tuple[str, Sequence[object]]]:
    for shelf in world.shelves.values():
        layout = known.layout(shelf)
        for spot, number in zip(layout.spots, layout.numbers, strict=True):
            yield spot.id.driver, known.known[number].answers
