"""Worlds and gangs for tests of the planner, written as people would: `a_cluster().node("a", gpus=2)`, `a_pod("p", 1)`.

Everything goes through the decoders, as JSON does in real life.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from admission.api.kubernetes import claims, devices, nodes, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.muster import meters
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering.device_meters import NONE, Meters
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Affordable, Plan, PodDemand, anything
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

DRIVER = "gpu.example.com"
CLASS = "gpu"
STEPS = 20_000

Json = dict[str, Any]


class ClusterBuilder:
    """Collects objects; every method returns the builder."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.slices: list[Json] = []
        self.classes: list[Json] = []
        self.pods: list[pods.Pod] = []
        self.claims: list[Claim] = []
        self._taken: dict[DeviceId, Holder] = {}
        self.device_class(CLASS, f"device.driver == '{DRIVER}'")

    def device_class(self, name: str, *selectors: str) -> Self:
        self.classes.append({"metadata": {"name": name}, "spec": {"selectors": [_cel(text) for text in selectors]}})
        return self

    def node(
        self,
        name: str,
        *,
        gpus: int | Sequence[Json] = 0,
        allocatable: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        deleted: str | None = None,
        **spec: Any,
    ) -> Self:
        status = {"allocatable": allocatable} if allocatable is not None else {}
        meta = {"name": name, "labels": labels or {}, "deletionTimestamp": deleted}
        self.nodes.append({"metadata": meta, "spec": spec, "status": status})
        if gpus:
            self.slice(name, gpus, nodeName=name)
        return self

    def slice(
        self,
        name: str,
        gpus: int | Sequence[Json],
        *,
        pool: str = "",
        generation: int = 1,
        count: int = 1,
        driver: str = DRIVER,
        **spec: Any,
    ) -> Self:
        given = [{} for _ in range(gpus)] if isinstance(gpus, int) else gpus
        self.slices.append(
            {
                "metadata": {"name": name, "uid": f"slice-{name}", "resourceVersion": str(generation)},
                "spec": {
                    "driver": driver,
                    "pool": {"name": pool or name, "generation": generation, "resourceSliceCount": count},
                    "devices": [{"name": f"gpu-{at}", **device} for at, device in enumerate(given)],
                    **spec,
                },
            }
        )
        return self

    def taken(self, pool: str, *gpus: int, claim: str = "others/claim", gang: str = "") -> Self:
        for gpu in gpus:
            self._taken[DeviceId(DRIVER, pool, f"gpu-{gpu}")] = Holder(claim=claim, gang=gang)
        return self

    def snapshot(self) -> Snapshot:
        made = [nodes.decode(node) for node in self.nodes]
        return Snapshot(
            nodes={node.name: node for node in made},
            slices={one["metadata"]["name"]: devices.decode_slice(one) for one in self.slices},
            classes={one["metadata"]["name"]: devices.decode_class(one) for one in self.classes},
            pods={pod.meta.uid: pod for pod in self.pods},
            claims={claim.meta.key: claim for claim in self.claims},
        )

    def cluster(self, *placements: Placement) -> ClusterState:
        cluster = cluster_state.build(self.snapshot(), placements)
        return replace(cluster, taken={**cluster.taken, **self._taken})

    def plan(
        self,
        *demands: PodDemand,
        meters: Meters = NONE,
        affordable: Affordable = anything,
        steps: int = STEPS,
    ) -> Plan | NoPlan:
        return gang_planner.plan(
            demands, self.cluster(), meters=meters, selectors=Selectors(), steps=steps, affordable=affordable
        )

    def diagnose(self, *demands: PodDemand) -> NoPlan:
        answer = self.plan(*demands)
        assert isinstance(answer, NoPlan), answer
        return gang_planner.diagnose(answer, demands, self.cluster(), selectors=Selectors(), steps=STEPS)


def a_cluster() -> ClusterBuilder:
    return ClusterBuilder()


def a_request(name: str = "gpu", count: int = 1, *selectors: str, **exactly: Any) -> Json:
    chosen = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count, **exactly}
    return {"name": name, "exactly": {**chosen, "selectors": [_cel(text) for text in selectors]}}


def a_claim(name: str, *requests: Json, constraints: Sequence[Json] = (), **status: Any) -> Claim:
    spec = {"devices": {"requests": list(requests), "constraints": list(constraints)}}
    return claims.decode(
        {"metadata": {"name": name, "namespace": "team", "uid": f"claim-{name}"}, "spec": spec, "status": status}
    )


def a_pod(name: str, *claimed: int | Claim | Json, requests: Mapping[str, str] | None = None, **spec: Any) -> PodDemand:
    """Return a pod; a claim is a number of GPUs, a request, or a claim as it is."""
    containers = [{"resources": {"requests": requests or {}}}]
    pod = pods.decode(
        {
            "metadata": {"name": name, "namespace": "team", "uid": f"pod-{name}"},
            "spec": {"containers": containers, **spec},
        }
    )
    made = []
    for at, entry in enumerate(claimed):
        if isinstance(entry, Claim):
            made.append(entry)
        else:
            request = a_request("gpu", entry) if isinstance(entry, int) else entry
            made.append(a_claim(f"{name}-{at}", request))
    return PodDemand(pod=pod, claims=tuple(made))


def a_meter(name: str, *sources: Json, **spec: Any) -> meters.Meter:
    return meters.decode({"metadata": {"name": name}, "spec": {"sources": list(sources), **spec}})


def a_source(measure: str, settings: Any = None, *classes: str, selector: str | None = None) -> Json:
    source: Json = {"deviceClasses": list(classes or (CLASS,)), measure: {} if settings is None else settings}
    return source if selector is None else {**source, "selector": selector}


def places(plan: Plan | NoPlan) -> dict[str, str]:
    """Return pod → node."""
    assert isinstance(plan, Plan), plan
    return {planned.pod.removeprefix("team/"): planned.node for planned in plan.pods}


def given(plan: Plan | NoPlan) -> dict[str, list[str]]:
    """Return pod → its devices as `pool/device`."""
    assert isinstance(plan, Plan), plan
    return {
        planned.pod.removeprefix("team/"): [
            f"{given.device.pool}/{given.device.device}" for claim in planned.claims for given in claim.devices
        ]
        for planned in plan.pods
    }


def refused(plan: Plan | NoPlan) -> NoPlan:
    assert isinstance(plan, NoPlan), plan
    return plan


def _cel(text: str) -> Json:
    return {"cel": {"expression": text}}
