"""Trees of queues of three levels of which each says something else: every option that decides who starts or goes.

Two branches under a root, with three queues that jobs are submitted to. All quota together is what the nodes have; who
has which part of it is drawn, so that almost every gang borrows, or reclaims.
"""

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any

from admission.api.muster.queues import QueueingStrategy
from tests.builders import a_cluster
from tests.property.eviction_clusters import GROUP, NAMESPACES, Mortal
from tests.property.test_cycles import PREFERENCES, counting

ROOT, BRANCHES, QUEUES = "top", ("east", "west"), ("left", "middle", "right")
MODELS = {"a100": 4, "h100": 2}
"""How many devices of each kind there are, on a node of their own."""
HALF_LIVES = ("5s", "40s", "10m")
MEMBERS = {"Namespace": ("team", "shop"), "User": ("ann", "bob"), "Label": ("red", "blue")}
ALL = {
    *("preferences", "whenCanBorrow Borrow", "whenCanBorrow TryNext"),
    *("fairSharing", "halfLife", "weight 0", "weight 0.3"),
    *("within Namespace", "within User", "within Label", "within weights", "within halfLife"),
    *("lending Always", "lending WhenIdle", "borrowingLimit", "lendingLimit", "priorityClasses"),
    *("charged by the plan", "late pods"),
    *("byShares LessThanInitialShare", "byShares LessThanOrEqualToFinalShare", "borrowWithinCohort"),
}

Spec = dict[str, Any]


@dataclass(frozen=True)
class World:
    """The specs of all queues. options: what at least one of those says. by_kind: whether quota is that of kinds.

    is_open, late: as of `Mortal`.
    """

    queues: dict[str, Spec]
    options: frozenset[str]
    by_kind: bool
    is_open: bool
    late: int

    def cluster(self, random: Random) -> Mortal:
        builder = a_cluster().node("a", gpus=MODELS["a100"]).node("b", gpus=MODELS["h100"], model="h100")
        builder._meters = [builder._meters[0], *(map(counting, MODELS) if self.by_kind else builder._meters[1:])]
        for name, spec in self.queues.items():
            builder.queue(name, **spec)
        return Mortal(
            random,
            builder,
            queues=QUEUES,
            namespaces=tuple(NAMESPACES),
            is_open=self.is_open,
            by_kind=self.by_kind,
            late=self.late,
        )


def drawn(random: Random) -> World:
    """Return a tree in which each queue's options are drawn by themselves."""
    by_kind = random.random() < 0.7
    said: set[str] = set()
    parents = {ROOT: None, **dict.fromkeys(BRANCHES, ROOT)}
    parents |= {"left": "east", "middle": random.choice(BRANCHES), "right": "west"}
    quotas = _quotas(random, by_kind=by_kind, said=said)
    queues: dict[str, Spec] = {}
    for name, parent in parents.items():
        spec: Spec = {"quotas": quotas[name], **({"parent": parent} if parent else {})}
        if name != ROOT and random.random() < 0.6:
            spec["fairSharing"] = _fair_sharing(random, has_members=name in QUEUES, said=said)
        if name in QUEUES:
            spec |= _own(random, by_kind=by_kind, said=said)
        queues[name] = spec
    is_open = random.random() < 0.5
    said |= {"charged by the plan"} if is_open else set()
    late = random.choice((0, 3))
    said |= {"late pods"} if late else set()
    return World(queues, frozenset(said), by_kind, is_open, late)


def _quotas(random: Random, *, by_kind: bool, said: set[str]) -> dict[str, list[Spec]]:
    """Draw of whom each device is, and what may be lent and borrowed of it."""
    nominal: defaultdict[tuple[str, str], int] = defaultdict(int)
    for model, number in MODELS.items():
        for _ in range(number):
            owner = random.choice((ROOT, *BRANCHES, *QUEUES, *QUEUES))
            nominal[owner, model if by_kind else "gpus"] += 1
    found: dict[str, list[Spec]] = {}
    for name in (ROOT, *BRANCHES, *QUEUES):
        found[name] = [{"meter": "claims", "nominal": random.choice((100, 100, 100, 1)) if name in QUEUES else 100}]
        for meter in MODELS if by_kind else ("gpus",):
            quota: Spec = {"meter": meter, "nominal": nominal[name, meter]}
            for limit in ("borrowingLimit", "lendingLimit"):
                if name != ROOT and random.random() < 0.1:
                    quota[limit] = random.randint(0, 3)
                    said.add(limit)
            found[name].append(quota)
    return found


def _fair_sharing(random: Random, *, has_members: bool, said: set[str]) -> Spec:
    weight = random.choice(("1", "2", "0.3", "0"))
    spec: Spec = {"weight": weight}
    said |= {"fairSharing", f"weight {weight}"}
    if random.random() < 0.4:
        spec["halfLife"] = random.choice(HALF_LIVES)
        said.add("halfLife")
    if has_members and random.random() < 0.9:
        by = random.choice(tuple(MEMBERS))
        within: Spec = {"by": by, **({"label": GROUP} if by == "Label" else {})}
        said.add(f"within {by}")
        if random.random() < 0.6:
            within["weights"] = [{"name": one, "weight": random.choice(("0", "1", "3"))} for one in MEMBERS[by]]
            said.add("within weights")
        if random.random() < 0.5:
            within["halfLife"] = random.choice(HALF_LIVES)
            said.add("within halfLife")
        spec["within"] = within
    return spec


def _own(random: Random, *, by_kind: bool, said: set[str]) -> Spec:
    """Draw what a queue says that jobs are submitted to."""
    lending = random.choice(("Always", "WhenIdle"))
    said.add(f"lending {lending}")
    spec: Spec = {"queueingStrategy": random.choice(tuple(QueueingStrategy)), "lending": lending}
    spec["preemption"] = _preemption(random, said)
    if random.random() < 0.3:
        spec["priorityClasses"] = [{"name": f"class-{value}", "value": value} for value in range(3)]
        said.add("priorityClasses")
    if by_kind and random.random() < 0.7:
        when = random.choice(("Borrow", "TryNext"))
        spec["preferences"] = {"kinds": random.sample(PREFERENCES["kinds"], 2), "whenCanBorrow": when}
        said |= {"preferences", f"whenCanBorrow {when}"}
    return spec


def _preemption(random: Random, said: set[str]) -> Spec:
    within = random.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority", "LowerOrNewerEqualPriority"))
    reclaim = random.choice(("Never", "LowerPriority", "Any", "Any", "Any"))
    said |= {f"withinQueue {within}", f"reclaim {reclaim}"}
    spec: Spec = {"withinQueue": within, "reclaim": reclaim}
    if reclaim == "Never":
        return spec
    if random.random() < 0.6:
        spec["byShares"] = random.choice(("LessThanInitialShare", "LessThanOrEqualToFinalShare"))
        said.add(f"byShares {spec['byShares']}")
    if random.random() < 0.5:
        spec["borrowWithinCohort"] = {"policy": "LowerPriority", "maxPriorityThreshold": random.choice((0, 1))}
        said.add("borrowWithinCohort")
    return spec
