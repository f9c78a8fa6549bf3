from dataclasses import replace

from admission.api.snapshot import Snapshot
from admission.review.caches import ReviewCaches
from tests.unit.claimpolicy.policies import a_policy
from tests.unit.podpolicy import test_workload_admission
from tests.unit.webhook.cases import World


def a_snapshot(queue: str = "team-a") -> Snapshot:
    return World().queue(queue, default=True).build()


def test_review_caches_are_kept_while_their_inputs_do_not_change() -> None:
    memory, first = ReviewCaches(), a_snapshot()
    later = replace(first, pods={})

    assert memory.defaults(later) is memory.defaults(first)
    assert memory.limits(later) is memory.limits(first)


def test_defaults_follow_queues_and_namespaces() -> None:
    memory, first = ReviewCaches(), a_snapshot()
    moved = replace(first, namespaces=World().namespace("ml", team="b").build().namespaces)

    assert [queue.name for queue in memory.defaults(first).open_to("ml")] == ["team-a"]
    assert memory.defaults(moved).open_to("ml") == ()
    assert [queue.name for queue in memory.defaults(a_snapshot("other")).open_to("ml")] == ["other"]


def test_limits_follow_queues_and_meters() -> None:
    memory, first = ReviewCaches(), a_snapshot()
    found = memory.limits(first)

    assert memory.limits(replace(first, meters=dict(first.meters))) is not found
    assert memory.limits(a_snapshot()) is not found


def test_the_queues_in_which_gangs_wait_follow_the_gangs() -> None:
    memory, first = ReviewCaches(), a_snapshot()
    waiting = replace(first, gangs={"ml/g": test_workload_admission.a_gang("QuotaExceeded")})
    admitted = replace(first, gangs={"ml/g": test_workload_admission.a_gang("QuotaExceeded", phase="Admitted")})

    found = [list(memory.lines(snapshot)) for snapshot in (first, waiting, waiting, admitted, first)]
    assert found == [[], ["team-a"], ["team-a"], [], []]


def test_policies_follow_policies_and_namespaces() -> None:
    memory, first = ReviewCaches(), a_snapshot()
    found = memory.policies(first)

    assert memory.policies(replace(first, pods={}, queues={})) is found
    assert memory.policies(replace(first, policies={"p": a_policy("p")})).choose("ml", "").policies
    assert memory.policies(replace(first, namespaces=dict(first.namespaces))) is not found
