"""First pods of Jobs that are each alone in a domain, against brute force: every order, every node, all followers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given, settings, strategies as st

from admission.api.kubernetes import pods as api_pods
from admission.api.kubernetes.pods import Pod as ApiPod
from admission.dra.planner.no_plan import Kind
from admission.dra.requests.gang_request import Choice, Colocation, PartLabels, Plan, PodDemand, Topology
from admission.dra.state.cluster_state import ClusterState
from admission.workloads.kinds import jobset
from tests.property import test_planner
from tests.property.test_domains import RACK, planned
from tests.property.test_planner import Node, Pod, Request, first_fits
from tests.property.test_subgroups import ZONE, Place
from tests.unit.dra.clusters import Json, a_cluster

OUTSIDER = "outsider"
INDEX = "index"
HOST = "kubernetes.io/hostname"
SPREAD = "spread"


@dataclass(frozen=True)
class Job:
    """A Job of equal pods, the first of which has to be alone in a domain of the label.

    spread: the label in whose domains the number of pods of Jobs with a spread may differ by one; "" for no spread.
    """

    name: str
    pods: int
    each: Pod
    label: str
    spread: str


@dataclass(frozen=True)
class There:
    """A pod of a Job on a node, from before. leads: whether it is the first one, which keeps others off."""

    job: str
    node: int
    leads: bool


@dataclass(frozen=True)
class Question:
    """Nodes, Jobs, and what is there. outsider: a pod of a Job of the same workload that may be anywhere."""

    cluster: tuple[Place, ...]
    jobs: tuple[Job, ...]
    there: tuple[There, ...]
    outsider: Pod | None


each = st.builds(
    Pod,
    requests=st.builds(Request, count=st.sampled_from((1, 1, 2)), model=st.sampled_from((None, "a100"))).map(
        lambda one: (one,)
    ),
    cpu=st.sampled_from((1, 1, 2)),
)
roomy = st.builds(
    Node,
    models=st.lists(st.sampled_from(test_planner.MODELS), min_size=1, max_size=4).map(tuple),
    cpu=st.integers(2, 5),
)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    racks = st.sampled_from(("a", "a", "b", "b", "c", "c", None))
    place = st.builds(Place, node=roomy, rack=racks, zone=st.sampled_from("xy"))
    cluster = tuple(draw(st.lists(place, min_size=2, max_size=5)))
    alike, labels = draw(each), st.sampled_from((RACK,) if draw(st.integers(0, 3)) else (RACK, ZONE))
    spread = draw(st.sampled_from(("", "", HOST, HOST, ZONE)))
    jobs = tuple(
        Job(
            f"j-{at}",
            draw(st.integers(1, 3)),
            draw(st.one_of(st.just(alike), each)),
            draw(labels),
            spread if draw(st.integers(0, 4)) else "",
        )
        for at in range(draw(st.sampled_from((1, 2, 2, 3))))
    )
    there = st.builds(
        There,
        job=st.sampled_from(("j-0", "x", "y")),
        node=st.integers(0, len(cluster) - 1),
        leads=st.booleans(),
    )
    found = draw(st.one_of(st.just([]), st.just([]), st.lists(there, min_size=1, max_size=2)))
    return Question(
        cluster=cluster,
        jobs=jobs,
        there=tuple(one for one in found if one.job != "j-0" or not one.leads),
        outsider=draw(st.one_of(st.none(), st.none(), st.none(), each)),
    )


@pytest.mark.parametrize("choice", list(Choice))
@given(asked=questions())
@settings(max_examples=75, deadline=None)
def test_first_pods_are_placed_where_some_placement_lets_all_others_follow(choice: Choice, asked: Question) -> None:
    known = built(asked)

    answer = planned(demands(asked), known, choice, topology(asked))

    start = [(list[str | None](place.node.models), place.node.cpu) for place in asked.cluster]
    there = [Placed(one.job, one.node, label=RACK if one.leads else "") for one in asked.there]
    firsts = [first(job) for job in asked.jobs] + ([Wanted(OUTSIDER, asked.outsider)] if asked.outsider else [])
    search = Force(asked, choice)
    assert isinstance(answer, Plan) is search.exists(start, there, firsts), answer
    event(f"{'a plan' if isinstance(answer, Plan) else answer.kind.value}, {len(asked.jobs)} jobs")
    if isinstance(answer, Plan):
        assert sorted(pod.pod for pod in answer.pods) == sorted(f"team/{one.job}" for one in firsts)
        nodes = {pod.pod.removeprefix("team/"): int(pod.node.removeprefix("n-")) for pod in answer.pods}
        given = {pod.pod.removeprefix("team/"): devices(pod.claims) for pod in answer.pods}
        order = [pod.pod.removeprefix("team/") for pod in answer.pods]
        assert search.takes(start, there, sorted(firsts, key=lambda one: order.index(one.job)), nodes, given)
    else:
        assert answer.kind in {Kind.INFEASIBLE, Kind.NO_DOMAIN}


# The world.


def built(asked: Question) -> ClusterState:
    builder = a_cluster()
    for at, place in enumerate(asked.cluster):
        gpus = [{"attributes": {"model": {"string": model}}} for model in place.node.models]
        labels = {ZONE: place.zone, HOST: f"n-{at}"} | ({RACK: place.rack} if place.rack is not None else {})
        builder.node(f"n-{at}", gpus=gpus, allocatable={"cpu": str(place.node.cpu)}, labels=labels)
    for at, one in enumerate(asked.there):
        affinity = jobset.exclusive_affinity(RACK, one.job) if one.leads else {}
        builder.pods.append(pod(f"there-{at}", one.job, affinity, nodeName=f"n-{one.node}"))
    return builder.cluster()


def pod(name: str, job: str, affinity: Json, labels: Json | None = None, **spec: object) -> ApiPod:
    meta = {
        "name": name,
        "namespace": "team",
        "uid": f"pod-{name}",
        "labels": {jobset.JOB_KEY: job, INDEX: "0", **(labels or {})},
    }
    return api_pods.decode({"metadata": meta, "spec": {"containers": [{"name": "c"}], "affinity": affinity, **spec}})


def demands(asked: Question) -> list[PodDemand]:
    found = [made(job.name, job.each, jobset.exclusive_affinity(job.label, job.name), job.spread) for job in asked.jobs]
    if asked.outsider is not None:
        found.append(replace(made(OUTSIDER, asked.outsider, {}, ""), subgroup=""))
    return found


def made(name: str, each: Pod, affinity: Json, spread: str) -> PodDemand:
    demand = test_planner.demand(name, each)
    claims = [{"name": "own", "resourceClaimTemplateName": "own"}]
    selector = {"matchLabels": {SPREAD: spread.rpartition("/")[2]}}
    constraint = {
        "maxSkew": 1,
        "topologyKey": spread,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    ruled = pod(
        name,
        name,
        affinity,
        labels={SPREAD: spread.rpartition("/")[2]},
        resourceClaims=claims,
        topologySpreadConstraints=[constraint] if spread else [],
    )
    return replace(demand, pod=replace(ruled, requests=demand.pod.requests), subgroup=name)


def topology(asked: Question) -> Topology:
    return Topology(
        subgroups=tuple((job.name, Colocation(exclusive=job.label, followers=job.pods - 1)) for job in asked.jobs),
        labels=PartLabels(part=jobset.JOB_KEY, index=INDEX),
    )


def devices(claims: Sequence[object]) -> frozenset[int]:
    return frozenset(
        int(one.device.device.removeprefix("gpu-"))
        for claim in claims
        for one in claim.devices  # type: ignore[attr-defined]
    )


# Brute force.


@dataclass(frozen=True)
class Wanted:
    """A pod to be placed. label: of the domains from which it keeps other Jobs; follows: the label of its domain."""

    job: str
    each: Pod
    label: str = ""
    follows: str = ""
    spread: str = ""


@dataclass(frozen=True)
class Placed:
    """A pod on a node. label: of the domains from which it keeps other Jobs."""

    job: str
    node: int
    spread: str = ""
    label: str = ""


Nodes = list[tuple[list[str | None], int]]


def first(job: Job) -> Wanted:
    return Wanted(job.name, job.each, label=job.label, spread=job.spread)


@dataclass(frozen=True)
class Force:
    """Tries every order of the first pods and of those that follow, every node, and every device where it may."""

    asked: Question
    choice: Choice

    def exists(self, state: Nodes, there: list[Placed], firsts: Sequence[Wanted]) -> bool:
        """Return whether there is a placement of first pods, and after them of all others."""
        return any(self.can_follow(after, placed) for after, placed in self._every(state, there, firsts))

    def can_follow(self, state: Nodes, there: list[Placed]) -> bool:
        """Return whether all pods that follow have a place."""
        before = [one.job for one in self.asked.there]
        rest = [
            Wanted(job.name, job.each, follows=job.label, spread=job.spread)
            for job in self.asked.jobs
            for _ in range(job.pods - 1 - before.count(job.name))
        ]
        return next(self._every(state, there, rest), None) is not None

    def takes(
        self,
        state: Nodes,
        there: list[Placed],
        firsts: Sequence[Wanted],
        nodes: dict[str, int],
        given: dict[str, frozenset[int]],
    ) -> bool:
        """Return whether a plan for first pods, in its order, is one after which all others have a place."""
        for one in firsts:
            node = nodes[one.job]
            if node not in self._nodes(one, there) or not any(
                taken == given[one.job] for taken in self._ways(state[node], one.each)
            ):
                return False
            state, there = (
                _after(state, node, given[one.job], one),
                [*there, Placed(one.job, node, one.spread, one.label)],
            )
        return self.can_follow(state, there)

    def _every(self, state: Nodes, there: list[Placed], left: Sequence[Wanted]) -> Iterator[tuple[Nodes, list[Placed]]]:
        if not left:
            yield state, there
        for at, one in enumerate(left):
            if one in left[:at]:
                continue
            for node in self._nodes(one, there):
                for taken in self._ways(state[node], one.each):
                    after = _after(state, node, taken, one)
                    yield from self._every(
                        after, [*there, Placed(one.job, node, one.spread, one.label)], [*left[:at], *left[at + 1 :]]
                    )

    def _ways(self, node: tuple[list[str | None], int], each: Pod) -> Iterator[frozenset[int]]:
        models, cpu = node
        if cpu < each.cpu:
            return
        known: set[frozenset[int]] = set()
        for taken in first_fits(models, [one for one in each.requests for _ in range(one.count)]):
            if taken not in known:
                yield taken
            known.add(taken)
            if self.choice is Choice.FIRST_FIT:
                return

    def _nodes(self, one: Wanted, there: Sequence[Placed]) -> list[int]:
        return [node for node in range(len(self.asked.cluster)) if self._may_go(one, node, there)]

    def _may_go(self, one: Wanted, node: int, there: Sequence[Placed]) -> bool:
        """Return whether kube-scheduler lets a pod on a node, by the rules that JobSet writes."""
        own = [other for other in there if other.job == one.job]
        others = [other for other in there if other.job != one.job]
        if any(other.label and self._are_together(other.label, other.node, node) for other in others):
            return False
        if one.label:
            is_free = not any(self._are_together(one.label, other.node, node) for other in others)
            labelled = [other for other in own if self._value(one.label, other.node) is not None]
            is_home = not labelled or any(self._are_together(one.label, other.node, node) for other in labelled)
            is_in_domain = self._value(one.label, node) is not None and is_free and is_home
            return is_in_domain and self._is_even(one, node, there, range(len(self.asked.cluster)))
        if one.follows:
            leader = next(other for other in own if other.label)
            domain = [at for at in range(len(self.asked.cluster)) if self._are_together(one.follows, leader.node, at)]
            return node in domain and self._is_even(one, node, there, domain)
        return True

    def _is_even(self, one: Wanted, node: int, there: Sequence[Placed], among: Sequence[int]) -> bool:
        """Return whether a pod's spread lets it on a node. among: the nodes that its node selector leaves."""
        if not one.spread:
            return True
        counts = {self._value(one.spread, at): 0 for at in among}
        for other in there:
            if other.spread == one.spread and other.node in among:
                counts[self._value(one.spread, other.node)] += 1
        return counts[self._value(one.spread, node)] == min(counts.values())

    def _are_together(self, label: str, node: int, other: int) -> bool:
        value = self._value(label, node)
        return value is not None and value == self._value(label, other)

    def _value(self, label: str, node: int) -> str | None:
        place = self.asked.cluster[node]
        return f"n-{node}" if label == HOST else place.rack if label == RACK else place.zone


def _after(state: Nodes, node: int, taken: frozenset[int], one: Wanted) -> Nodes:
    models, cpu = state[node]
    rest = [None if at in taken else model for at, model in enumerate(models)]
    return [*state[:node], (rest, cpu - one.each.cpu), *state[node + 1 :]]
