"""A gang starts on the kind of devices that trying all kinds one by one, every order and every node, would choose."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from hypothesis import example, given, settings, strategies as st

from admission.api.muster import queues
from admission.api.muster.meters import Meter, decode
from admission.api.muster.preferences import DeviceKind, Preferences, WhenCanBorrow
from admission.api.muster.queues import PlacementMode
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.planner import device_kinds
from admission.dra.planner.device_kinds import Attempt
from admission.dra.requests.gang_request import Choice, Plan
from admission.quota.headroom import QueueUsage
from admission.quota.shortage import Shortage
from admission.quota.tree import Tree
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import preference
from admission.scheduling.checks.chain import Grant
from admission.scheduling.checks.preference import Terms, WouldBorrow
from admission.scheduling.placement.mode import Chosen
from tests.property.test_planner import Node, Pod, Request, built, demanded, first_fits
from tests.unit.dra.clusters import CLASS, DRIVER, STEPS

ORDER = ("h100", "a100")
MODELS = (*ORDER, "v100")
"""The kinds in the order of preference, and a model that is of no kind."""
QUEUE, PARENT, ROOT = QueueName("q"), QueueName("parent"), QueueName("root")

requests = st.builds(Request, count=st.integers(1, 2), model=st.sampled_from((None,) * 6 + MODELS))
pods = st.builds(Pod, requests=st.lists(requests, min_size=1, max_size=2).map(tuple), cpu=st.just(1))
pure = st.sampled_from([(model,) * 4 for model in ORDER])
mixed = st.lists(st.sampled_from((*ORDER, *ORDER, "v100")), max_size=6).map(tuple)
nodes = st.builds(Node, models=pure | mixed, cpu=st.just(8))


@dataclass(frozen=True)
class Quotas:
    """The nominal quota of a queue, of the one above it and of the root, by model."""

    own: Mapping[str, int]
    parent: Mapping[str, int]
    root: Mapping[str, int]

    def level(self, charge: Mapping[str, int]) -> int | None:
        """Return how far up a charge is borrowed from; None if all of it together is too little."""
        levels = [self._level(model, amount) for model, amount in charge.items()]
        return None if None in levels else max((level for level in levels if level is not None), default=0)

    def _level(self, model: str, amount: int) -> int | None:
        sums = accumulate((self.own[model], self.parent[model], self.root[model]))
        return next((level for level, most in enumerate(sums) if amount <= most), None)


@st.composite
def drawn_quotas(draw: st.DrawFn) -> Quotas:
    """Draw what the queue has itself, and by model whether one of the queues above it has plenty."""
    lenders = {model: draw(st.sampled_from((None, PARENT, ROOT, ROOT))) for model in MODELS}
    return Quotas(
        own={model: draw(st.integers(0, 2)) for model in MODELS},
        parent={model: 9 * (lender == PARENT) for model, lender in lenders.items()},
        root={model: 9 * (lender == ROOT) for model, lender in lenders.items()},
    )


NONE = dict.fromkeys(MODELS, 0)
FARTHER_FIRST = Quotas(own=NONE, parent={**NONE, "a100": 9}, root={**NONE, "h100": 9})


@example(
    [Node((model,), 8) for model in ORDER],
    [Pod((Request(1, None),), 1)],
    FARTHER_FIRST,
    WhenCanBorrow.TRY_NEXT,
    Choice.FIRST_FIT,
)
@given(
    st.lists(nodes, min_size=2, max_size=3),
    st.lists(pods, min_size=1, max_size=2),
    drawn_quotas(),
    st.sampled_from(WhenCanBorrow),
    st.sampled_from(Choice),
)
@settings(max_examples=150, deadline=None)
def test_a_gang_gets_the_kind_that_trying_all_of_them_would_choose(
    cluster: list[Node], gang: list[Pod], quota: Quotas, when: WhenCanBorrow, choice: Choice
) -> None:
    assert planned(cluster, gang, quota, when, choice) == expected(cluster, gang, quota, when, choice)


def selector(model: str) -> str:
    return f"device.attributes['{DRIVER}'].model == '{model}'"


PREFERENCES = Preferences(kinds=tuple(DeviceKind(name=m, classes=(CLASS,), selector=selector(m)) for m in ORDER))


def a_meter(model: str) -> Meter:
    source = {"deviceClasses": [CLASS], "selector": selector(model), "count": {}}
    return decode({"metadata": {"name": model}, "spec": {"sources": [source]}})


METERS = device_meters.compile_meters(map(a_meter, MODELS))


def usage(quota: Quotas) -> QueueUsage:
    def a_queue(name: str, nominal: Mapping[str, int], parent: str | None) -> Any:
        spec: dict[str, Any] = {"quotas": [{"meter": model, "nominal": n} for model, n in nominal.items()]}
        return queues.decode({"metadata": {"name": name}, "spec": {**spec, **({"parent": parent} if parent else {})}})

    tree = Tree.build(
        [a_queue(ROOT, quota.root, None), a_queue(PARENT, quota.parent, ROOT), a_queue(QUEUE, quota.own, PARENT)]
    )
    return QueueUsage(tree, {})


def planned(
    cluster: Sequence[Node], gang: Sequence[Pod], quota: Quotas, when: WhenCanBorrow, choice: Choice
) -> Mapping[str, int] | None:
    """Return what the gang is charged on the kind that it gets; None if it is held."""
    state, selectors, queue_usage = built(cluster).cluster(), Selectors(), usage(quota)

    def plan(attempt: Attempt, terms: Terms) -> Verdict:
        def affordable(charge: Mapping[MeterName, int]) -> Shortage | WouldBorrow | None:
            short = queue_usage.charge_fits(QUEUE, charge)
            would_borrow = not terms.may_borrow and queue_usage.loan_level(QUEUE, charge)
            return short or (WouldBorrow(QUEUE) if would_borrow else None)

        free = choice is Choice.FREE
        answer = gang_planner.plan(
            [replace(one, kept_to=None) if free else one for one in attempt.demands],
            state,
            meters=METERS,
            selectors=selectors,
            steps=STEPS,
            affordable=affordable,
            choice=choice,
        )
        pinned = Chosen(mode=PlacementMode.PIN, reason="")
        held = Hold(HoldReason.DEVICES_BUSY, "there is no plan")
        group: Any = None
        return Verdict(
            group=group, outcome=Grant(plan=answer, claims={}, chosen=pinned) if isinstance(answer, Plan) else held
        )

    attempts = device_kinds.attempts(demanded(gang), PREFERENCES, state, selectors)
    found = preference.first(attempts, when, plan, lambda charge: queue_usage.loan_level(QUEUE, charge)).outcome
    return {str(meter): amount for meter, amount in found.plan.charge.items()} if isinstance(found, Grant) else None


def expected(
    cluster: Sequence[Node], gang: Sequence[Pod], quota: Quotas, when: WhenCanBorrow, choice: Choice
) -> dict[str, int] | None:
    present = {model for node in cluster for model in node.models}
    supplied = [model for model in ORDER if model in present]
    is_open = len(supplied) > 1 and any(request.model is None for pod in gang for request in pod.requests)
    fits: list[tuple[int, dict[str, int]]] = []
    for kind in supplied if is_open else supplied[:1] or ORDER[:1]:
        narrowed = [replace(pod, requests=tuple(narrow(one, kind) for one in pod.requests)) for pod in gang]
        charge = counted(narrowed)
        level = quota.level(charge)
        free = [(list(node.models), at) for at, node in enumerate(cluster)]
        if level is not None and feasible(free, list(zip(gang, narrowed, strict=True)), cluster, choice):
            fits.append((level, charge))
    within = [charge for level, charge in fits if not level]
    if when is WhenCanBorrow.TRY_NEXT and within:
        return within[0]
    if when is WhenCanBorrow.TRY_NEXT and fits:
        return min(fits, key=lambda one: one[0])[1]
    return fits[0][1] if fits else None


def narrow(request: Request, kind: str) -> Request:
    """A request for v100s alone is for no kind, so that nothing serves it."""
    return replace(
        request, model=kind if request.model is None else request.model if request.model in ORDER else "none"
    )


def counted(gang: Sequence[Pod]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for pod in gang:
        for request in pod.requests:
            found[str(request.model)] += request.count
    return dict(found) if "none" not in found else {}


def feasible(
    free: list[tuple[list[Any], int]], gang: list[tuple[Pod, Pod]], cluster: Sequence[Node], choice: Choice
) -> bool:
    """Try every order and every node. free: the free devices of each node; a taken one is None."""
    if not gang:
        return True
    for at, (pod, narrowed) in enumerate(gang):
        for number, (models, node) in enumerate(free):
            if choice is Choice.FIRST_FIT and not is_decided(pod, narrowed, cluster[node]):
                continue
            taken = next(first_fits(models, [r for r in narrowed.requests for _ in range(r.count)]), None)
            if taken is None:
                continue
            rest = [None if place in taken else model for place, model in enumerate(models)]
            after = [*free[:number], (rest, node), *free[number + 1 :]]
            if feasible(after, [*gang[:at], *gang[at + 1 :]], cluster, choice):
                return True
    return False


def is_decided(pod: Pod, narrowed: Pod, node: Node) -> bool:
    """Whether all devices of the node that a pod's requests match are of the kinds that these are narrowed to."""
    pairs = zip(pod.requests, narrowed.requests, strict=True)
    return all(wanted.takes(model) for one, wanted in pairs for model in node.models if one.takes(model))
