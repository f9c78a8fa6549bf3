"""Each decision is told once, with the gang's UID."""

from datetime import timedelta

from admission.api.values.names import QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle.outcome import Kind
from tests.builders import NOON, a_cluster, pod_of
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, run


async def test_an_admission_is_a_decision_once_with_its_charge_and_waiting_time() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)
    leader = a_leader(Cluster(builder), Ledger())

    first, second = await run(leader), await run(leader, NOON + timedelta(seconds=1))

    (told,) = first.decisions
    assert (told.kind, told.uid, told.queue, told.pods) == (Kind.ADMITTED, "job-train", "q", 2)
    assert told.charge == {"claims": 2, "gpus": 2}
    assert told.waited == timedelta(minutes=59)
    assert second.decisions == ()


async def test_a_hold_is_a_decision_when_it_begins_and_when_its_reason_changes() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=1).job("big", queue="q", pods=2)
    cluster = Cluster(builder)
    leader = a_leader(cluster, Ledger())

    first, second = await run(leader), await run(leader, NOON + timedelta(minutes=2))
    cluster._rest = a_cluster().node("a", gpus=1).queue("q", gpus=9).snapshot()
    third = await run(leader, NOON + timedelta(minutes=3))

    (told,) = first.decisions
    assert (told.kind, told.uid, told.reason) == (Kind.HELD, "job-big", HoldReason.QUOTA_EXCEEDED)
    assert told.details["left"] == "1"
    assert second.decisions == ()
    assert [(one.kind, one.reason) for one in third.decisions] == [(Kind.HELD, HoldReason.NO_FEASIBLE_PLACEMENT)]


async def test_a_pod_that_comes_to_a_gang_that_runs_has_not_waited_as_long_as_the_gang() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)
    cluster = Cluster(builder)
    leader = a_leader(cluster, Ledger())
    await run(leader)
    late = builder.pod("train-2", queue="q", owner="job-train", job="train").snapshot()
    cluster._pods[Uid("pod-train-2")] = pod_of(late, "train-2")
    cluster._claims["team/train-2-gpus"] = late.claims["team/train-2-gpus"]

    result = await run(leader, NOON + timedelta(seconds=1))

    (told,) = result.decisions
    assert (told.kind, told.queue, told.waited) == (Kind.ADMITTED, QueueName("q"), None)
