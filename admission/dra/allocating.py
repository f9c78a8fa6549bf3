"""One pod on one node: what kube-scheduler's allocator would answer, with its outcomes kept apart.

`planning` searches over pods and nodes with the same parts; this is the question for a single pod, for explanations and
for comparing with the answers of Kubernetes' own code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from admission.api.claims import Claim
from admission.api.devices import DeviceId
from admission.api.entries import RequestDevice
from admission.api.names import NodeName
from admission.dra import asking, metering, profiles, searching
from admission.dra.asking import ClaimAsk, Refusal, RequestAsk
from admission.dra.pools import Shelf, Soundness
from admission.dra.profiles import Answer, Layout, Profiles
from admission.dra.searching import Budget, Found, Stuck
from admission.dra.selecting import Selectors
from admission.dra.worlds import World


@dataclass(frozen=True, slots=True)
class Allocated:
    """Per claim its devices, in the order in which kube-scheduler writes them."""

    claims: tuple[tuple[RequestDevice, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHere:
    """Not on this node; another one may do. matching and free: devices of the node that do for the request."""

    claim: str
    request: str
    device_class: str
    needed: int
    matching: int
    free: int
    tainted: int
    constrained: bool
    invalid: str = ""
    """What is wrong with a pool of the node; its devices are not used."""

    @property
    def message(self) -> str:
        """Say what fails."""
        where = f"request {self.request} of claim {self.claim} needs {self.needed} of class {self.device_class}"
        if not self.matching:
            tainted = f"{self.tainted} match, all tainted" if self.tainted else "no device matches"
            return f"{where}: {tainted}" + (f"; {self.invalid}" if self.invalid else "")
        together = ", and a constraint keeps them apart" if self.constrained and self.free >= self.needed else ""
        return f"{where}: {self.matching} match, {self.free} free{together}"


Outcome = Allocated | NotHere | Refusal


def allocate(claims: Sequence[Claim], node: NodeName, world: World, *, selectors: Selectors, steps: int) -> Outcome:
    """Allocate all unallocated claims of one pod on one node, all or nothing. Raises StepsEndedError."""
    asked: list[ClaimAsk] = []
    for claim in claims:
        found = asking.of(claim.spec, world.classes, f"claim {claim.meta.name}")
        if not isinstance(found, ClaimAsk):
            return found
        asked.append(found)
    need = profiles.Need(asking.asks(asked), asking.attributes(asked), metering.NONE, world.shared)
    known = profiles.of(need, selectors)
    shelf = world.shelves.get(node, Shelf())
    layout = known.layout(shelf)
    free = [at for at, spot in enumerate(layout.spots) if spot.id not in world.taken]
    answer = searching.search(asked, [layout.numbers[at] for at in free], known, Budget(steps))
    if isinstance(answer, Found):
        return Allocated(_devices(answer, asked, [layout.spots[at].id for at in free]))
    if isinstance(answer, Stuck):
        return _not_here(answer, claims, asked, _Node(shelf, layout, frozenset(free), known))
    return answer


def _devices(
    found: Found, asked: Sequence[ClaimAsk], free: Sequence[DeviceId]
) -> tuple[tuple[RequestDevice, ...], ...]:
    return tuple(
        tuple(RequestDevice(request=claim.requests[request].name, device=free[at]) for request, at in picks)
        for claim, picks in zip(asked, found.picks, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Node:
    shelf: Shelf
    layout: Layout
    free: frozenset[int]
    known: Profiles

    def answers(self, request: RequestAsk) -> list[object]:
        ask = self.known.need.asks.index(request.ask)
        return [self.known.known[number].answers[ask] for number in self.layout.numbers]


def _not_here(stuck: Stuck, claims: Sequence[Claim], asked: Sequence[ClaimAsk], node: _Node) -> NotHere:
    request = asked[stuck.claim].requests[stuck.request]
    answers = node.answers(request)
    matching = {at for at, answer in enumerate(answers) if answer is Answer.YES}
    broken = [f"{pool.title}: {pool.why}" for pool in node.shelf.pools if pool.soundness is not Soundness.SOUND]
    return NotHere(
        claim=claims[stuck.claim].meta.name,
        request=request.name,
        device_class=request.ask.device_class,
        needed=request.count,
        matching=len(matching),
        free=len(matching & node.free),
        tainted=answers.count(Answer.TAINTED),
        constrained=stuck.constrained,
        invalid="; ".join(broken),
    )
