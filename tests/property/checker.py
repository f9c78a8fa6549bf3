"""An independent judge of allocations: slow, without a search order, one rule after the other.

A record is what the conformance corpus calls one (its README lists the keys), `results` one status.allocation per
claim. `violations` says what is wrong with an answer that was given, `exists` whether there is any answer at all. The
rules are those of Kubernetes' *incubating* allocator; what it gets wrong in 1.36 is not imitated (DEFECTS). Nothing is
shared with `admission.dra` but the evaluation of selectors, which other tests judge.
"""

import itertools
from collections.abc import Iterator, Sequence

from tests.property.rules import all_mode, answers, capacities, constraints, counters, fitting, sharing
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Json, Use

DEFECTS = {
    "distinctAttribute": "1.36 remembers one value a request, so of three devices two may have the same",
    "counters of pool": "1.36 keeps counters by the pool's name: two drivers' pools of one name spoil each other's",
    "consumedCapacity is": "1.36 adds amounts like 1.5Gi, which it keeps as decimals, in place: in the slice itself",
}
"""How sentences about Kubernetes 1.36's own answers may begin or go on, and why they are no news."""


def violations(record: Json, results: Sequence[Json], release: int = 37) -> list[str]:
    """Say what is wrong with these allocations of the record's claims; nothing if they are right."""
    cluster_state = World(record, release)
    if len(results) != len(record["claims"]):
        return [f"{len(results)} allocations for {len(record['claims'])} claims"]
    uses: list[Use] = []
    said: list[str] = []
    for claim, result in enumerate(results):
        given = result.get("devices", {}).get("results") or []
        found = [answers.use_of(cluster_state, claim, entry) for entry in given]
        said += [each for each in found if isinstance(each, str)]
        mine = [each for each in found if isinstance(each, Use)]
        if len(mine) == len(given):
            said += answers.wrong_counts(cluster_state, claim, mine)
            said += itertools.chain(
                *(answers.wrong_entry(cluster_state, *pair) for pair in zip(mine, given, strict=True))
            )
            said += answers.wrong_node_selector(cluster_state, mine, result.get("nodeSelector"))
        uses += mine
    return [*said, *broken(cluster_state, uses)]


def objections(record: Json, chosen: Sequence[Sequence[Json]], release: int = 37) -> list[str]:
    """Say what is wrong with devices chosen for the record's claims, whatever an allocation of them would say.

    chosen: for every claim entries of request, driver, pool and device.
    """
    cluster_state = World(record, release)
    uses: list[Use] = []
    said: list[str] = []
    for claim, entries in enumerate(chosen):
        found = [answers.use_of(cluster_state, claim, entry) for entry in entries]
        mine = [each for each in found if isinstance(each, Use)]
        said += [each for each in found if isinstance(each, str)]
        said += answers.wrong_counts(cluster_state, claim, mine)
        uses += mine
    return [*said, *broken(cluster_state, uses)]


def exists(record: Json, release: int = 37, *, steps: int = 20_000) -> bool | None:
    """Whether there is any allocation that breaks no rule; None where that many partial ones do not tell.

    kube-scheduler's search is complete: it tries every alternative, and every set of devices of a request. Its answer
    "none" (and the node error about invalid pools) is thus right only where nothing exists. That includes mode All with
    a device in use, since All means every matching device, used or not. The break-off at 32 results loses nothing
    either: what it depends on are the alternatives chosen, never the devices. Not judged here: fatal errors.
    """
    cluster_state = World(record, release)
    try:
        return _can_go_on(cluster_state, list(itertools.chain(*cluster_state.asks)), (), _Budget(steps))
    except _TooManySteps:
        return None


_RULES = (
    fitting.unfit,
    sharing.used_twice,
    sharing.too_long,
    counters.exceeded,
    capacities.exceeded,
    constraints.broken,
)


def broken(cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    """Name the rules that these uses together break. What is broken stays broken if more uses are added."""
    for rule in _RULES:
        yield from rule(cluster_state, uses)


class _TooManySteps(Exception):  # noqa: N818
    pass


class _Budget:
    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self) -> None:
        if not self._left:
            raise _TooManySteps
        self._left -= 1


def _can_go_on(cluster_state: World, requests: Sequence[Sequence[Ask]], uses: tuple[Use, ...], budget: _Budget) -> bool:
    if not requests:
        return True
    for ask in requests[0]:
        for chosen in _choices(cluster_state, ask, uses, budget):
            if _can_go_on(cluster_state, requests[1:], (*uses, *chosen), budget):
                return True
    return False


def _choices(cluster_state: World, ask: Ask, uses: tuple[Use, ...], budget: _Budget) -> Iterator[tuple[Use, ...]]:
    """Yield every set of devices for the request that breaks no rule together with these uses."""
    if ask.wants_all:
        matching = [Use(ask, device) for device in all_mode.wanted(cluster_state, ask)]
        if matching and not all_mode.blocked(cluster_state) and not any(broken(cluster_state, [*uses, *matching])):
            yield tuple(matching)
        return
    fits = [
        use for device in cluster_state.candidates() if not any(fitting.unfit(cluster_state, [use := Use(ask, device)]))
    ]
    yield from _sets(cluster_state, fits, ask.spec.get("count", 0), uses, budget)


def _sets(
    cluster_state: World, fits: Sequence[Use], count: int, uses: tuple[Use, ...], budget: _Budget
) -> Iterator[tuple[Use, ...]]:
    if count <= 0:
        yield ()
    for at, use in enumerate(fits[: len(fits) - count + 1] if count > 0 else ()):
        budget.spend()
        if not any(broken(cluster_state, [*uses, use])):
            for rest in _sets(cluster_state, fits[at + 1 :], count - 1, (*uses, use), budget):
                yield (use, *rest)
