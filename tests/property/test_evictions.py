"""Random steps of queues that evict each other's gangs: whole ones, by the rules, and never for ever."""

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, event, given, settings, strategies as st

from admission.api.muster.queues import QueueingStrategy
from tests import soaking
from tests.builders import a_cluster
from tests.property import queue_options
from tests.property.eviction_clusters import Mortal, priced, walk

QUEUES = ("left", "right")
PREEMPTION: dict[str, Any] = {"withinQueue": "LowerPriority", "reclaim": "Any"}
BORROWING = {"policy": "LowerPriority", "maxPriorityThreshold": 1}
NEWER = {"withinQueue": "LowerOrNewerEqualPriority", "reclaim": "Any", "borrowWithinCohort": BORROWING}
KEEPING = {"withinQueue": "LowerOrNewerEqualPriority"}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {"preemption": PREEMPTION},
    "all that evicts": {"preemption": NEWER, "fairSharing": {"weight": "1"}},
    "by shares": {
        "preemption": {**NEWER, "byShares": "LessThanInitialShare"},
        "fairSharing": {"weight": "1"},
        "gpus": 1,
    },
    "by final shares": {
        "preemption": {**PREEMPTION, "byShares": "LessThanOrEqualToFinalShare"},
        "fairSharing": {"weight": "1", "within": {"by": "Namespace"}},
        "gpus": 0,
    },
    "what is kept, and all else": {
        "preemption": {**NEWER, "reclaim": "LowerPriority", "byShares": "LessThanInitialShare"},
        "fairSharing": {"weight": "1", "within": {"by": "User"}},
        "priorityClasses": [{"name": f"class-{value}", "value": value} for value in range(3)],
        "gpus": 2,
        "claims": 1,
    },
    "by plan": {"preemption": PREEMPTION, "is_open": True},
    "by plan, late pods": {"preemption": PREEMPTION, "is_open": True, "late": 3},
    "by plan, priced": {"preemption": PREEMPTION, "is_open": True, "credits_": 15},
    "by plan, what is kept": {"preemption": KEEPING, "is_open": True},
    "by plan, priced, what is kept": {"preemption": KEEPING, "is_open": True, "credits_": 15},
    "by plan, all that evicts": {
        "preemption": {**NEWER, "byShares": "LessThanInitialShare"},
        "fairSharing": {"weight": "1"},
        "gpus": 2,
        "is_open": True,
    },
}
"""What the queues say. gpus, claims and credits_: the nominal quota of each; what is missing is their parent's, so that
of claims one is borrowed with almost any gang. is_open, late: as of `Mortal`. By default queues keep quota that they
cannot take back (`lending`)."""
GPUS, CREDITS = 6, 34
STEPS = 1_000 if soaking.is_on() else 90
FEW = {"by plan, what is kept", "by plan, priced, what is kept"}
"""Those of queues that take nothing back."""
MORE_STEPS = {"what is kept, and all else": 250, **dict.fromkeys(FEW, 120)}
"""Of those whose rules let few be evicted."""
MIXED_STEPS = 1_000 if soaking.is_on() else 40
MIXED_WALKS = 40 if soaking.is_on() else 6


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_random_evictions_livelock_no_gang(strategy: QueueingStrategy, options: str) -> None:
    seed = f"{strategy}" if options == "usual" else f"{strategy}, {options}"
    steps = max(STEPS, MORE_STEPS.get(options, 0))

    evictions = asyncio.run(walk(two_queues(Random(seed), strategy, **OPTIONS[options]), steps))  # noqa: S311 - no secrets

    assert evictions > (0 if options in FEW else steps // 50), "it is about evictions"


def two_queues(
    random: Random,
    strategy: QueueingStrategy,
    *,
    gpus: int = 3,
    claims: int = 100,
    credits_: int | None = None,
    is_open: bool = False,
    late: int = 0,
    **spec: Any,
) -> Mortal:
    """Return a cluster with two queues that say the same."""
    builder = a_cluster().node("a", gpus=4).node("b", gpus=2, model="a100" if credits_ is None else "h100")
    if credits_ is not None:
        builder._meters.append(priced())
    own = {"claims": claims, "gpus": gpus, **({} if credits_ is None else {"credits": credits_})}
    shared = {"claims": 100, "gpus": GPUS - 2 * gpus, "credits": CREDITS - 2 * (credits_ or 0)}
    builder.queue("top", quotas=[{"meter": meter, "nominal": str(shared[meter])} for meter in own])
    quotas = [{"meter": meter, "nominal": str(amount)} for meter, amount in own.items()]
    for name in QUEUES:
        builder.queue(name, quotas=quotas, parent="top", queueingStrategy=strategy, **spec)
    return Mortal(random, builder, queues=QUEUES, namespaces=("team",), is_open=is_open, late=late)


# A smaller seed is no simpler walk, so none is searched for.
@settings(max_examples=MIXED_WALKS, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@pytest.mark.timeout(3_600)
@given(st.integers(0, 2**32))
def test_random_evictions_livelock_no_gang_whatever_each_queue_of_a_tree_says(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - not for secrets
    world = queue_options.drawn(random)
    for option in sorted(world.options):
        event(option)

    evictions = asyncio.run(walk(world.cluster(random), MIXED_STEPS))

    event(f"evictions: {evictions}" if evictions < 5 else "evictions: 5 or more")


def test_each_option_is_in_a_good_share_of_the_trees_that_are_drawn() -> None:
    drawn = [queue_options.drawn(Random(seed)).options for seed in range(400)]  # noqa: S311 - not for secrets

    shares = {option: sum(option in world for world in drawn) / 400 for option in set().union(*drawn)}

    assert {option: share for option, share in shares.items() if share < 0.25} == {}
    assert shares.keys() >= queue_options.ALL
