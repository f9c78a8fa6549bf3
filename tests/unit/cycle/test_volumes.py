"""The volumes of waiting pods through whole cycles: what storage changes lets gangs in."""

from dataclasses import replace
from typing import Any

from admission.api.kubernetes import pods
from admission.api.snapshot import Snapshot
from admission.api.storage import persistent_volumes
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.reasons import HoldReason
from admission.filters import pod_claims
from tests.builders import NAMESPACE, ClusterBuilder, a_cluster
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, gang, run

CLAIM = {"metadata": {"name": "data", "namespace": NAMESPACE, "uid": "data"}, "spec": {"storageClassName": "now"}}


def with_volume(builder: ClusterBuilder) -> ClusterBuilder:
    """Give every pod the volume of the claim `data`."""
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    rules = pods.decode({"metadata": {"name": "-"}, "spec": spec}).rules
    builder._pods = [replace(pod, rules=rules) for pod in builder._pods]
    return builder


class Stored(Cluster):
    """A cluster whose storage a test replaces."""

    storage: Storage | None = Storage()

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), storage=self.storage)


def bound(node: str) -> Storage:
    notes = {"pv.kubernetes.io/bind-completed": "yes"}
    meta: dict[str, Any] = {**CLAIM["metadata"], "annotations": notes}
    term = {"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": [node]}]}
    volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}
    claim = persistent_volumes.decode_claim({**CLAIM, "metadata": meta, "spec": {"volumeName": "pv"}})
    return Storage(volumes={"pv": persistent_volumes.decode_volume(volume)}, claims={claim.meta.key: claim})


async def test_a_gang_waits_for_its_claim_and_goes_where_the_volume_is() -> None:
    builder = a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=8).job("train", queue="q", pods=2)
    cluster = Stored(with_volume(builder))
    leader = a_leader(cluster, Ledger())

    missing = gang(await run(leader), "train")
    unbound = persistent_volumes.decode_claim(CLAIM)
    cluster.storage = Storage(claims={unbound.meta.key: unbound})
    waiting = gang(await run(leader), "train")
    cluster.storage = bound("b")
    placed = gang(await run(leader), "train")

    assert missing.hold is not None
    assert waiting.hold is not None
    assert missing.hold.reason == waiting.hold.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "by persistent volume claim data (it does not exist), even" in missing.hold.message
    assert "persistent volume claim data (it is not bound to a volume yet)" in waiting.hold.message
    assert {node for _, node in cluster.opened} == {"b"}
    assert placed.not_simulated == ()


async def test_where_storage_may_not_be_read_gangs_start_and_their_volumes_are_named() -> None:
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=8).job("train", queue="q")
    cluster = Stored(with_volume(builder))
    cluster.storage = None

    report = gang(await run(a_leader(cluster, Ledger())), "train")

    assert [name for name, _ in cluster.opened] == ["train-0"]
    assert [text.partition(" (")[0] for text in report.not_simulated] == ["persistent volume claim data of pod train-0"]


def test_a_claim_that_is_made_with_a_pod_does_not_hold_the_workload_that_makes_it() -> None:
    """Of a workload that is held as a whole there are no pods yet, and so no claims of their ephemeral volumes."""
    spec = {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}
    pod = pods.decode({"metadata": {"name": "p", "namespace": NAMESPACE, "uid": "p"}, "spec": spec})
    expected = replace(pod, meta=replace(pod.meta, uid=names.expected_pod(Uid("job"), 0)))

    assert pod_claims.resolve(pod, Storage()).refusal is not None
    assert pod_claims.resolve(expected, Storage()).refusal is None
    assert pod_claims.resolve(expected, Storage()).unjudged == ("ephemeral volume v",)
