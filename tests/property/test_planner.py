"""Laws of the planner and of the quota tree, checked by programs that are not clever."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import given, settings, strategies as st

from admission.dra.planner.no_plan import Kind
from admission.dra.requests.gang_request import Plan, PodDemand
from tests.unit.dra.clusters import DRIVER, STEPS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request
from tests.unit.quota.trees import GPU, TreeBuilder, a_tree

MODELS = ("a100", "h100")


@dataclass(frozen=True)
class Request:
    """So many devices of a model, or of any."""

    count: int
    model: str | None

    def takes(self, model: str) -> bool:
        return self.model is None or model == self.model


@dataclass(frozen=True)
class Pod:
    requests: tuple[Request, ...]
    cpu: int


@dataclass(frozen=True)
class Node:
    """A node: free devices by model, in order, and cores."""

    models: tuple[str, ...]
    cpu: int


requests = st.builds(Request, count=st.integers(1, 2), model=st.sampled_from((None, *MODELS)))
pods = st.builds(Pod, requests=st.lists(requests, min_size=1, max_size=2).map(tuple), cpu=st.integers(1, 2))
nodes = st.builds(Node, models=st.lists(st.sampled_from(MODELS), max_size=4).map(tuple), cpu=st.integers(1, 4))
cluster_states = st.lists(nodes, min_size=1, max_size=3)
gangs = st.lists(pods, min_size=1, max_size=4)


def built(cluster_state: Sequence[Node]) -> ClusterBuilder:
    builder = a_cluster()
    for at, node in enumerate(cluster_state):
        gpus = [{"attributes": {"model": {"string": model}}} for model in node.models]
        builder.node(f"n-{at}", gpus=gpus, allocatable={"cpu": str(node.cpu)})
    return builder


def demanded(gang: Sequence[Pod]) -> list[PodDemand]:
    return [demand(f"p-{at}", pod) for at, pod in enumerate(gang)]


def demand(name: str, pod: Pod) -> PodDemand:
    asked = [
        a_request(f"r-{at}", r.count, *([f"device.attributes['{DRIVER}'].model == '{r.model}'"] if r.model else []))
        for at, r in enumerate(pod.requests)
    ]
    return a_pod(name, a_claim(f"{name}-c", *asked), requests={"cpu": str(pod.cpu)})


@given(cluster_states, gangs)
@settings(max_examples=150, deadline=None)
def test_a_plan_gives_every_pod_its_requested_devices(cluster_state: list[Node], gang: list[Pod]) -> None:
    plan = built(cluster_state).plan(*demanded(gang))
    if not isinstance(plan, Plan):
        return

    assert sorted(planned.pod for planned in plan.pods) == sorted(f"team/p-{at}" for at in range(len(gang)))
    devices = [given.device for pod in plan.pods for claim in pod.claims for given in claim.devices]
    assert len(devices) == len(set(devices))
    used: Counter[int] = Counter()
    for planned in plan.pods:
        pod, node = gang[int(planned.pod.rpartition("-")[2])], int(planned.node.removeprefix("n-"))
        used[node] += pod.cpu
        counted: Counter[str] = Counter()
        for each in planned.claims[0].devices:
            assert each.device.pool == planned.node
            request = pod.requests[int(each.request.removeprefix("r-"))]
            assert request.takes(cluster_state[node].models[int(each.device.device.removeprefix("gpu-"))])
            counted[each.request] += 1
        assert counted == {f"r-{at}": request.count for at, request in enumerate(pod.requests)}
    assert all(amount <= cluster_state[node].cpu for node, amount in used.items())


@given(cluster_states, gangs)
@settings(max_examples=150, deadline=None)
def test_a_gang_of_plain_requests_is_feasible_where_brute_force_says_so(
    cluster_state: list[Node], gang: list[Pod]
) -> None:
    answer = built(cluster_state).plan(*demanded(gang))

    assert isinstance(answer, Plan) is feasible([(list(node.models), node.cpu) for node in cluster_state], gang)
    assert isinstance(answer, Plan) or answer.kind is Kind.INFEASIBLE


def feasible(cluster_state: list[tuple[list[str | None], int]], gang: Sequence[Pod]) -> bool:
    """Try every order and every node; a pod gets the first fit. A taken device is None."""
    if not gang:
        return True
    for at, pod in enumerate(gang):
        for number, (models, cpu) in enumerate(cluster_state):
            taken = next(first_fits(models, [r for r in pod.requests for _ in range(r.count)]), None)
            if cpu >= pod.cpu and taken is not None:
                rest = [None if place in taken else model for place, model in enumerate(models)]
                after = [*cluster_state[:number], (rest, cpu - pod.cpu), *cluster_state[number + 1 :]]
                if feasible(after, [*gang[:at], *gang[at + 1 :]]):
                    return True
    return False


def first_fits(models: Sequence[str | None], wanted: Sequence[Request]) -> Iterator[frozenset[int]]:
    """Yield every way to serve requests one device at a time, the allocator's first."""
    if not wanted:
        yield frozenset()
        return
    for place, model in enumerate(models):
        if model is not None and wanted[0].takes(model):
            rest = [None if place == at else other for at, other in enumerate(models)]
            for more in first_fits(rest, wanted[1:]):
                yield more | {place}


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4), st.lists(st.integers(1, 3), min_size=1, max_size=5), st.data()
)
@settings(max_examples=60, deadline=None)
def test_more_devices_never_make_a_gang_infeasible(sizes: list[int], counts: list[int], data: st.DataObject) -> None:
    """Where every pod has one request for any device."""
    gang = [Pod((Request(count, None),), 1) for count in counts]
    cluster_state = [Node(("a100",) * size, 8) for size in sizes]
    grown = data.draw(st.integers(0, len(sizes) - 1))
    larger = [Node((*n.models, "a100"), n.cpu) if at == grown else n for at, n in enumerate(cluster_state)]

    if isinstance(built(cluster_state).plan(*demanded(gang), steps=STEPS), Plan):
        assert isinstance(built(larger).plan(*demanded(gang), steps=STEPS), Plan)


limits = st.none() | st.integers(0, 6)


@st.composite
def trees(draw: st.DrawFn) -> TreeBuilder:
    """Draw a tree of up to seven queues, in which nothing is used yet."""
    size = draw(st.integers(1, 7))
    builder = a_tree()
    for at in range(size):
        builder.queue(
            f"q-{at}",
            draw(st.none() | st.integers(0, 8)),
            parent=f"q-{draw(st.integers(0, at - 1))}" if at else None,
            borrows=draw(limits),
            lends=draw(limits),
        )
    return builder


@st.composite
def used(draw: st.DrawFn) -> TreeBuilder:
    """Draw a tree in whose queues some of what was available has been taken, one queue after the other."""
    builder = draw(trees())
    names = sorted(builder.usage)
    for name in draw(st.lists(st.sampled_from(names), max_size=8)):
        builder.usage[name][GPU] += draw(st.integers(0, builder.left(name)))
    return builder


@given(used())
@settings(max_examples=200, deadline=None)
def test_a_queue_that_takes_what_is_available_has_nothing_left(builder: TreeBuilder) -> None:
    for name in sorted(builder.usage):
        left = builder.left(name)
        assert left >= 0
        builder.usage[name][GPU] += left
        assert builder.left(name) == 0
        builder.usage[name][GPU] -= left


@given(used())
@settings(max_examples=200, deadline=None)
def test_a_tree_never_uses_more_than_it_has(builder: TreeBuilder) -> None:
    tree = builder.tree
    total = sum(quota.nominal for quotas in tree.quotas.values() for quota in quotas.values())

    assert sum(amounts[GPU] for amounts in builder.usage.values()) <= total


@given(used())
@settings(max_examples=200, deadline=None)
def test_nothing_that_is_used_makes_more_available_than_there_could_ever_be(builder: TreeBuilder) -> None:
    for name in builder.usage:
        assert builder.left(name) <= builder.potential(name)


@given(used())
@settings(max_examples=200, deadline=None)
def test_a_loan_is_borrowed_by_one_and_lent_by_another(builder: TreeBuilder) -> None:
    tree = builder.tree
    for parent, children in tree.children.items():
        borrowed = sum(builder.borrowed(child) for child in children)
        lent = sum(builder.lent(child) for child in children)
        own = tree.quotas[parent].get(GPU)
        if own is None and tree.parents.get(parent) is None:
            assert lent >= borrowed
        assert builder.lent(parent) >= 0
