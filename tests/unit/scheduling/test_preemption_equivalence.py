"""Which gangs the same victims would help: those that ask for the same in everything that a plan is made from."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.kubernetes.pods import Container, Pod, Stage
from admission.api.muster.queues import PlacementMode
from admission.api.scheduling.scheduling_rules import AffinityTerm, SchedulingRules
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import MeterName
from admission.api.values.selectors import LabelSelector, NodeSelector, Requirement, Toleration
from admission.dra.state import cluster_state
from admission.scheduling.preemption import equivalence
from admission.scheduling.preemption.equivalence import PreemptionQuestions
from admission.scheduling.preemption.victim_searches import VictimSearches
from admission.workloads import gangs
from tests.builders import a_cluster, pod_of, running, with_pods


def questions(snapshot: Snapshot, **queue: Any) -> list[Hashable]:
    """What the gangs ask for, in the order of their names."""
    found = sorted(gangs.groups(snapshot, {}), key=lambda group: group.key)
    queues = snapshot.queues
    return [equivalence.content(group, replace(queues[group.queue], **queue), {}, snapshot) for group in found]


def two(**job: Any) -> Snapshot:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=8).queue("r", gpus=8)
    return builder.job("x", queue="q", pods=2).job("y", **{"queue": "q", "pods": 2, **job}).snapshot()


def changed(change: Callable[[Pod], Pod]) -> Snapshot:
    snapshot = two()
    return with_pods(snapshot, change(pod_of(snapshot, "y-1")))


def test_gangs_that_differ_in_names_alone_are_the_same_preemption_question() -> None:
    one, other = questions(two())

    assert one == other


@pytest.mark.parametrize(
    "job",
    [
        {"pods": 3},
        {"gpus": 2},
        {"cpu": "2"},
        {"queue": "r"},
        {"annotations": {names.TOPOLOGY: "rack"}},
        {"annotations": {names.SUBGROUP: "a", names.SUBGROUP_TOPOLOGY: "rack"}},
        {"annotations": {names.RUNTIME: "1h"}},
        {"annotations": {names.GANG_MIN: "1"}},
    ],
    ids=str,
)
def test_gangs_with_different_pods_are_different_preemption_questions(job: dict[str, Any]) -> None:
    one, other = questions(two(**job))

    assert one != other


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: replace(pod, affinity=NodeSelector(terms=())),
        lambda pod: replace(pod, tolerations=(Toleration(key="special"),)),
        lambda pod: replace(pod, node_selector={"zone": "a"}),
        lambda pod: replace(pod, priority=5),
        lambda pod: replace(pod, containers=(Container(stage=Stage.MAIN, requests=(("example.com/gpu", 1),)),)),
    ],
    ids=["affinity", "tolerations", "node selector", "priority", "extended resources"],
)
def test_gangs_that_differ_in_a_single_pod_are_different_preemption_questions(change: Callable[[Pod], Pod]) -> None:
    one, other = questions(changed(change))

    assert one != other


def test_gangs_with_different_named_claims_are_different_preemption_questions() -> None:
    """Two claims that ask for the same may be allocated on different nodes."""
    snapshot = two()

    def named(pod: Pod) -> Pod:
        claim = replace(pod.claims[0], claim=pod.claim_name(pod.claims[0]), template=None)
        return replace(pod, claims=(claim,))

    snapshot = with_pods(snapshot, *map(named, snapshot.pods.values()))

    one, other = questions(snapshot)
    assert one != other


def test_claims_from_templates_of_one_name_may_ask_for_different_things() -> None:
    """A template is written anew under its name; claims that were made before stay what they are."""
    snapshot = two()
    old, new = snapshot.claims["team/y-1-gpus"], two(gpus=2).claims["team/y-1-gpus"]
    snapshot = replace(snapshot, claims={**snapshot.claims, old.meta.key: replace(old, spec=new.spec)})

    one, other = questions(snapshot)

    assert one != other


def test_a_gang_that_shares_a_claim_is_a_different_preemption_question() -> None:
    snapshot = two()
    pods = [
        replace(pod, generated_claims={"gpus": "y-0-gpus"})
        for pod in snapshot.pods.values()
        if pod.meta.name.startswith("y-")
    ]

    one, other = questions(with_pods(snapshot, *pods))

    assert one != other


def test_gangs_of_different_placement_modes_are_different_preemption_questions() -> None:
    snapshot = two()

    assert questions(snapshot, placement=PlacementMode.COUNT) != questions(snapshot, placement=PlacementMode.PIN)


def test_gangs_with_different_expected_runtimes_are_different_preemption_questions() -> None:
    snapshot = two()

    assert questions(snapshot, default_runtime=timedelta(hours=1)) != questions(snapshot)


def test_the_cached_preemption_question_of_a_gang_changes_with_its_pods_and_ends_with_the_gang() -> None:
    snapshot = two()
    known = PreemptionQuestions()
    groups = {group.key: group for group in gangs.groups(snapshot, {})}
    x, y = (groups[key] for key in sorted(groups))
    queue = snapshot.queues[x.queue]
    assert known.question(x, queue, {}, snapshot) is known.question(y, queue, {}, snapshot)

    other = replace(y, pods=tuple(replace(pod, priority=1, node_selector={"zone": "a"}) for pod in y.pods))
    assert known.question(other, queue, {}, snapshot) is not known.question(x, queue, {}, snapshot)
    assert known.question(y, queue, {MeterName("gpus"): 2}, snapshot) is not known.question(x, queue, {}, snapshot)

    first = known.question(x, queue, {}, snapshot)
    known.keep([])
    assert known.question(x, queue, {}, snapshot) is not first


def test_gangs_that_the_anti_affinity_of_a_running_pod_tells_apart_are_different_preemption_questions() -> None:
    """One may go where the other may not, so that other victims help it."""
    snapshot = two(labels={"app": "shy"})
    x, y = sorted(gangs.groups(snapshot, {}), key=lambda group: group.key)
    queue = snapshot.queues[x.queue]
    runs = running(pod_of(a_cluster().pod("runs").snapshot(), "runs"), "a")
    about = LabelSelector(requirements=(Requirement(key="app", operator="In", values=("shy",)),))
    term = AffinityTerm(topology_key="rack", selector=about, namespaces=frozenset({"team"}))
    bars = with_pods(snapshot, replace(runs, rules=SchedulingRules(anti_affinity=(term,))))
    searches = VictimSearches()

    searches.begin((x, y), cluster_state.build(snapshot, ()))
    assert searches.question(x, queue, {}, snapshot) is searches.question(y, queue, {}, snapshot)

    searches.begin((x, y), cluster_state.build(bars, ()))
    assert searches.question(x, queue, {}, bars) is not searches.question(y, queue, {}, bars)
