"""Which namespaces may enter a queue."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.reasons import DenyReason
from admission.podpolicy import pod_view, queue_selection
from admission.podpolicy.queue_selection import QueueSelection
from admission.review.caches import ReviewCaches
from tests.unit.webhook.cases import World, a_pod

SELECTORS = {
    "": {},
    "a=b": {"matchLabels": {"a": "b"}},
    "a in (b,c)": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
    "a notin (b)": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
    "a,!b": {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
}


@pytest.mark.parametrize(("text", "selector"), SELECTORS.items(), ids=SELECTORS)
def test_selectors_are_written_as_kubectl_takes_them(text: str, selector: dict[str, Any]) -> None:
    queue = World().queue("q", namespaceSelector=selector).build().queues
    (found,) = queue.values()

    assert found.namespaces is not None
    assert queue_selection.describe(found.namespaces) == (text or "any labels")


def entrance(cluster_state: World, pod: dict[str, Any]) -> QueueSelection:
    snapshot = cluster_state.build()
    return queue_selection.select_queue(pod_view.decode(pod, "ml"), snapshot, ReviewCaches().defaults(snapshot))


def aliased() -> World:
    """Return a world where `user-queue` and `root.team-a` mean team-a, and other names are team-b's, elsewhere."""
    cluster_state = World().queue("team-a", aliases=["user-queue", "root.team-a"]).queue("fallback", default=True)
    return cluster_state.queue("team-b", team="b", aliases=["user-queue", "theirs"])


KUEUE = "kueue.x-k8s.io/queue-name"
YUNIKORN = {"labels": {"queue": "root.team-a", "applicationId": "app-1"}}

CALLED: dict[str, dict[str, Any]] = {
    "by Kueue": {"labels": {KUEUE: "user-queue"}},
    "by Volcano": {"annotations": {"scheduling.volcano.sh/queue-name": "user-queue"}},
    "by Volcano on the pods of its Jobs": {"labels": {"volcano.sh/queue-name": "user-queue"}},
    "by YuniKorn": {"labels": {"yunikorn.apache.org/queue": "root.team-a"}},
    "by YuniKorn in an annotation": {"annotations": {"yunikorn.apache.org/queue": "root.team-a"}},
    "by YuniKorn as it was": YUNIKORN,
    "by KAI": {"labels": {"kai.scheduler/queue": "user-queue"}},
    "by its Job": {"annotations": {names.QUEUE_ALIAS: "user-queue"}},
    "by itself before its Job": {"labels": {KUEUE: "user-queue"}, "annotations": {names.QUEUE_ALIAS: "unknown"}},
}


@pytest.mark.parametrize("metadata", CALLED.values(), ids=CALLED)
def test_a_pod_enters_the_queue_that_is_called_so_in_its_namespace(metadata: dict[str, Any]) -> None:
    found = entrance(aliased(), a_pod(**metadata))

    assert found.queue is not None
    assert found.queue.name == "team-a"


@pytest.mark.parametrize(
    ("metadata", "queue"),
    [
        ({"labels": {names.QUEUE: "fallback", KUEUE: "user-queue"}}, "fallback"),
        ({}, "fallback"),
        ({"labels": {"queue": "root.team-a"}}, "fallback"),
    ],
    ids=["its own word goes first", "who says nothing", "`queue` alone is nobody's word"],
)
def test_a_pod_that_names_no_queue_so_enters_as_ever(metadata: dict[str, Any], queue: str) -> None:
    found = entrance(aliased(), a_pod(**metadata))

    assert found.queue is not None
    assert found.queue.name == queue


NOWHERE = "no queue that is open to namespace ml is called so in its spec.aliases"
MEND = "or name the queue in label muster.dev/queue"

REFUSED = {
    "a name of no queue": (
        aliased(),
        "user-queu",
        f"label {KUEUE} names queue user-queu, and {NOWHERE} (nearest: user-queue); add it there, {MEND}",
    ),
    "a name of a queue elsewhere": (
        aliased(),
        "theirs",
        f"label {KUEUE} names queue theirs, and {NOWHERE} (known are root.team-a, user-queue); add it there, {MEND}",
    ),
    "a name of two": (
        aliased().queue("team-c", aliases=["user-queue"]),
        "user-queue",
        (
            f"label {KUEUE} names queue user-queue, and so team-a and team-c are called in namespace ml; take it out of"
            f" spec.aliases of all but one, {MEND}"
        ),
    ),
}


@pytest.mark.parametrize(("cluster_state", "name", "message"), REFUSED.values(), ids=REFUSED)
def test_a_pod_whose_alias_maps_to_no_queue_is_refused(cluster_state: World, name: str, message: str) -> None:
    denial = entrance(cluster_state, a_pod(labels={KUEUE: name})).denial

    assert denial is not None
    assert (denial.reason, denial.message) == (DenyReason.UNKNOWN_QUEUE, message)


def test_queue_labels_of_other_systems_are_not_read_where_no_queue_has_aliases() -> None:
    found = entrance(World().queue("team-a", default=True), a_pod(labels={KUEUE: "user-queue"}))

    assert found.queue is not None
    assert found.queue.name == "team-a"


def test_a_queue_that_is_being_deleted_is_called_nothing() -> None:
    found = entrance(
        aliased().queue("new", aliases=["user-queue"]).deleted("team-a"), a_pod(labels={KUEUE: "user-queue"})
    )

    assert found.queue is not None
    assert found.queue.name == "new"
