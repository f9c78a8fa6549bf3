"""Gangs whose namespace their queue is not open to any more: they keep what they have, and start no pods."""

from dataclasses import replace

from admission.api.kubernetes import nodes
from admission.api.kubernetes.meta import Meta
from admission.api.snapshot import Snapshot
from admission.api.values.reasons import Denial, DenyReason
from admission.cycle.state.result import CycleResult
from tests.builders import NAMESPACE, ClusterBuilder, a_cluster
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, gang, run


class Labelled(Cluster):
    """Its namespace may be labelled anew."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.team = "vision"

    def snapshot(self) -> Snapshot:
        namespace = nodes.Namespace(meta=Meta(name=NAMESPACE), labels={"team": self.team})
        return replace(super().snapshot(), namespaces={NAMESPACE: namespace})


def a_team() -> ClusterBuilder:
    selector = {"matchLabels": {"team": "vision"}}
    return a_cluster().node("a", gpus=8).queue("q", gpus=4, namespaceSelector=selector)


def denial_of(result: CycleResult, name: str) -> Denial:
    denial = gang(result, name).hold
    assert isinstance(denial, Denial)
    return denial


async def test_a_gang_that_waits_does_not_start_while_its_namespace_is_labelled_otherwise() -> None:
    cluster = Labelled(a_team().job("big", queue="q", pods=8))
    leader = a_leader(cluster, Ledger())
    await run(leader)

    cluster.team = "speech"
    found = denial_of(await run(leader), "big")
    assert found.reason is DenyReason.QUEUE_NOT_OPEN
    assert found.message == f"queue q is open to namespaces with team=vision; namespace {NAMESPACE} has team=speech"

    cluster.team = "vision"
    assert gang(await run(leader), "big").hold != found


async def test_a_running_gang_keeps_its_devices_when_its_namespace_leaves_the_queue() -> None:
    cluster, ledger = Labelled(a_team().job("train", queue="q", pods=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)

    cluster.team = "speech"
    result = await run(leader)

    assert gang(result, "train").charges == {"claims": 2, "gpus": 2}
    assert not gang(result, "train").hold
    assert len(cluster.opened) == 2


async def test_a_pod_of_a_queue_that_is_not_open_to_its_namespace_is_not_admitted() -> None:
    """The webhook is asked about such a pod where it can be: while Muster is down, it may have come in."""
    cluster = Labelled(a_team().pod("thief", queue="q"))
    cluster.team = "speech"

    result = await run(a_leader(cluster, Ledger()))

    assert denial_of(result, "thief").reason is DenyReason.QUEUE_NOT_OPEN
    assert not cluster.opened


async def test_a_queue_that_became_a_parent_starts_no_gang() -> None:
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=4, namespaceSelector=None).job("train", queue="q")

    result = await run(a_leader(Cluster(builder), Ledger()))

    assert denial_of(result, "train").reason is DenyReason.QUEUE_NOT_OPEN
