"""The volumes of waiting pods through whole cycles: what storage changes lets gangs in."""

from dataclasses import replace
from typing import Any

from admission.api.kubernetes import pods
from admission.api.snapshot import Snapshot
from admission.api.storage import persistent_volumes
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import HOSTNAME, Uid
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


def waiting(*names: str, volumes: dict[str, str]) -> Storage:
    """Return claims of these names that wait for one of these volumes, each of a node."""
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    claims = [{"metadata": {"name": name, "namespace": NAMESPACE, "uid": name}, "spec": spec} for name in names]
    of_class = {"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"}
    found = []
    for name, node in volumes.items():
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
        free = {"metadata": {"name": name}, "spec": {**spec, **affinity}, "status": {"phase": "Available"}}
        found.append(persistent_volumes.decode_volume(free))
    return Storage(
        claims={claim.meta.key: claim for claim in map(persistent_volumes.decode_claim, claims)},
        volumes={volume.meta.name: volume for volume in found},
        classes={"local": persistent_volumes.decode_class(of_class)},
    )


class Stored(Cluster):
    """A cluster whose storage a test replaces."""

    storage: Storage | None = Storage()

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), storage=self.storage)


def bound(node: str) -> Storage:
    notes = {"pv.kubernetes.io/bind-completed": "yes"}
    meta: dict[str, Any] = {**CLAIM["metadata"], "annotations": notes}
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
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


async def test_a_gang_gets_no_volume_of_a_gang_that_was_admitted_before_and_is_not_bound() -> None:
    builder = a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=8)
    builder = builder.job("train", queue="q").job("next", queue="q")
    for at, pod in enumerate(builder._pods):
        own = [{"name": "v", "persistentVolumeClaim": {"claimName": pod.meta.name}}]
        rules = pods.decode({"metadata": {"name": "-"}, "spec": {"volumes": own}}).rules
        builder._pods[at] = replace(pod, rules=rules)
    cluster = Stored(builder)
    leader = a_leader(cluster, Ledger())

    cluster.storage = waiting("train-0", volumes={"pv": "a"})
    await run(leader)
    cluster.storage = waiting("train-0", "next-0", volumes={"pv": "a"})
    held = gang(await run(leader), "next")
    cluster.storage = waiting("train-0", "next-0", volumes={"pv": "a", "more": "b"})
    placed = gang(await run(leader), "next")

    assert held.hold is not None
    assert held.hold.reason == HoldReason.DEVICES_BUSY
    assert "lack of a volume for persistent volume claim next-0" in held.hold.message
    assert cluster.opened == [("train-0", "a"), ("next-0", "b")]
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
