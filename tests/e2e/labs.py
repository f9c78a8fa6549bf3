"""Hardware, classes, meters and a team of one test's own, and what the cluster and the ledger say of its gangs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from admission.api.values import quantities
from tests.controlplane import ControlPlane, building, fleet, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import teams
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team

PLENTY = "1000000Gi"

RACK = "topology.example.com/rack"
"""The label of the racks that tests put nodes into."""

Devices = dict[str, list[list[str]]]
"""Claim → its devices, each as request, driver, pool and device. A claim goes by its UID, one that kube-scheduler makes
for extended resources by its pod's."""


@dataclass(kw_only=True)
class Lab:
    """Hardware of one driver, which is also the name of its class, and a team that may use it.

    All of it is gone once the lab is left, but the namespace.
    """

    control_plane: ControlPlane
    muster: Muster
    namespace: Namespace
    driver: str
    hardware: list[Manifest] = field(default_factory=list)
    meters: list[str] = field(default_factory=list)
    _counted: dict[str, None] = field(default_factory=dict)
    """The classes that they count, in order."""
    _team: Team | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.clear()

    @property
    def client(self) -> Client:
        return self.namespace.client

    @property
    def team(self) -> Team:
        assert self._team is not None, "call found first"
        return self._team

    def install(self, *manifests: Manifest) -> None:
        fleet.install(self.client, manifests)
        self.hardware += manifests

    def node(self, name: str, devices: Sequence[Manifest], counters: Sequence[Manifest] = ()) -> str:
        """Add a node with a pool of these devices, and return its name, which never returns: it names the devices."""
        name = f"{name}-{self.driver.partition('.')[0]}"
        slices = [fleet.resource_slice(name, devices, driver=self.driver)] if devices else []
        if counters:
            pool = fleet.resource_slice(f"{name}-counters", [], driver=self.driver)
            del pool["spec"]["devices"]
            pool["spec"].update({"nodeName": name, "sharedCounters": list(counters)})
            slices.append(pool)
        for piece in slices:
            piece["spec"]["pool"].update({"name": name, "resourceSliceCount": len(slices)})
        self.install(fleet.node(name), *slices)
        return name

    def device_class(self, expression: str = "", *, suffix: str = "", **spec: Any) -> str:
        """Add a class of the driver's devices, or of those of them that an expression selects."""
        name = f"{suffix}{self.driver}"
        only = " && ".join(filter(None, (f"device.driver == '{self.driver}'", expression)))
        made = fleet.device_class(name)
        made["spec"] = {"selectors": [{"cel": {"expression": only}}], **spec}
        self.install(made)
        return name

    def meter(self, name: str, *classes: str, **measure: Any) -> str:
        """Add a meter of these classes, by default of the driver's only one."""
        name = f"{name}-{self.driver.partition('.')[0]}"
        self._counted |= dict.fromkeys(classes or (self.driver,))
        source = {"deviceClasses": list(classes or (self.driver,)), **measure}
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Meter", "metadata": {"name": name}}
        self.client.apply(f"{GROUP}/meters/{name}", {**body, "spec": {"unit": "unit", "sources": [source]}})
        self.meters.append(name)
        return name

    def extended(self) -> str:
        """Offer the driver's devices as an extended resource, metered by `gpus` and `claims`, and return its name."""
        if self.control_plane.version in building.ON_DEMAND:
            pytest.skip(f"Kubernetes {self.control_plane.version} has no extended resources that devices stand behind")
        resource = f"{self.driver}/gpu"
        self.device_class(extendedResourceName=resource)
        self.meter("gpus", count={})
        self.meter("claims", claims={})
        return resource

    def found(self, quotas: Mapping[str, str] | None = None, **spec: Any) -> Team:
        """Found the team: it may have plenty of all that is metered but for these quotas."""
        nominal = dict.fromkeys(self.meters, PLENTY) | dict(quotas or {})
        listed = [{"meter": meter, "nominal": amount} for meter, amount in nominal.items()]
        self._team = teams.found_team(
            self.control_plane, self.namespace, gpus=0, quotas=listed, classes=[*self._counted], **spec
        )
        return self._team

    def submit(self, name: str, *, pods: int, request: Manifest | None = None, **more: Any) -> None:
        """Create a Job whose pods have a claim with this request each, under `constraints`, or these `resources`.

        Resources of the pod as a whole are `of_pod`.
        """
        if request is not None:
            self.namespace.create(workloads.claim_template(name, request, constraints=more.pop("constraints", [])))
        manifest = teams.job(name, pods=pods, template=name, annotations=more.pop("annotations", {}))
        spec = manifest["spec"]["template"]["spec"]
        resources = more.pop("resources", None)
        if resources is not None:
            used = {} if request is None else spec["containers"][0]["resources"]
            spec["containers"][0]["resources"] = {"requests": resources, "limits": resources, **used}
        if request is None:
            spec["resourceClaims"] = []
        if "of_pod" in more:
            spec["resources"] = {"requests": more.pop("of_pod")}
        spec.update(more)
        self.client.create(self.team.jobs, manifest)

    def let_in(self, name: str, **more: Any) -> None:
        """Submit a gang and wait until it is granted and its gates are open; somebody else binds its pods."""
        self.submit(name, **more)
        eventually(
            lambda: self.team.pods(name) and not self.team.gated(name),
            what=lambda: f"the gates of {name} are open: {self.team.standing(name)}",
        )

    def stop_queue(self, policy: str) -> None:
        self.client.merge_patch(f"{GROUP}/queues/{self.team.queue}", {"spec": {"stopPolicy": policy}})

    def used(self, meter: str) -> tuple[int, int]:
        """Reserved and used of the queue, as its status shows them."""
        status = self.client.get(f"{GROUP}/queues/{self.team.queue}").get("status", {})
        uses = [use for use in status.get("meters", []) if use["meter"] == meter]
        amounts = [int(quantities.parse(use[bucket])) for use in uses for bucket in ("reserved", "used")]
        return (amounts[0], amounts[1]) if amounts else (-1, -1)

    def wait_used(self, **amounts: tuple[int, int]) -> None:
        """Wait until the queue's status shows these reserved and used amounts, by the meters' short names."""
        number = self.driver.partition(".")[0]
        eventually(
            lambda: {name: self.used(f"{name}-{number}") for name in amounts} == amounts,
            what=lambda: f"{amounts}; last {[(meter, self.used(meter)) for meter in self.meters]}",
        )

    def pinned_to(self, name: str) -> list[str]:
        return sorted(pod["spec"].get("nodeName", "") for pod in self.team.pods(name))

    def allocated(self, name: str) -> Devices:
        """Return what the claims of a Job's pods were given, from the API server."""
        return {
            uid: [[one[key] for key in ("request", "driver", "pool", "device")] for one in results_of(claim)]
            for pod in self.team.pods(name)
            for uid, claim in self.claims_of(pod).items()
        }

    def claims_of(self, pod: Any) -> dict[str, Any]:
        status = pod["status"]
        own = [self.namespace.claim(one["resourceClaimName"]) for one in status.get("resourceClaimStatuses", [])]
        found = {claim["metadata"]["uid"]: claim for claim in own}
        if "extendedResourceClaimStatus" in status:
            made = self.namespace.claim(status["extendedResourceClaimStatus"]["resourceClaimName"])
            found[f"{pod['metadata']['uid']}/extended-resources"] = made
        return found

    def entries(self, name: str, kind: str) -> list[Any]:
        """Return the ledger's transactions of one kind about a Job's gang, in order."""
        return self.muster.entries(f"{self.namespace.name}/{name}", kind)

    def booked(self, name: str, kind: str) -> Devices:
        """Return what the claims of a Job's pods were granted (reserve) or really given (settle), from the ledger."""
        rows = self.entries(name, kind)
        return {one["claim_uid"]: one["devices"] for row in rows for one in json.loads(row["holdings"])}

    def wait_running(self, name: str, pods: int) -> None:
        """Wait until the gang runs whole and the ledger has the devices that its claims were really given."""
        self.team.wait_running(name, pods)
        eventually(
            lambda: self.booked(name, "settle") == self.allocated(name),
            what=lambda: f"{name} is settled: {self.booked(name, 'settle')} of {self.allocated(name)} is booked",
        )

    def wait_running_as_planned(self, name: str, pods: int) -> None:
        """Wait until the gang runs whole, with the very devices that it was granted.

        Not where others end in this moment: of the devices that become free kube-scheduler takes the first ones. Which
        pod of the gang gets which of them is its choice, too: at times it takes them in another order than their gates
        were opened in.
        """
        self.wait_running(name, pods)
        assert sorted(self.allocated(name).values()) == sorted(self.booked(name, "reserve").values())

    def end(self, *names: str) -> None:
        """Finish these gangs; nothing of them is left in the books, which are right."""
        for name in names:
            self.team.finish(name)
        eventually(
            lambda: all(self.used(meter) == (0, 0) for meter in self.meters),
            what=lambda: f"all of {names} is given back; last {[(meter, self.used(meter)) for meter in self.meters]}",
        )
        assert self.muster.wrong_books() is None

    def clear(self) -> None:
        """Take everything away but the namespace."""
        if self._team is not None:
            self.namespace.empty()
            self.client.delete(f"{GROUP}/queues/{self.team.queue}")
        for meter in self.meters:
            self.client.delete(f"{GROUP}/meters/{meter}")
        fleet.remove(self.client, self.hardware)
        for manifest in self.hardware:
            if manifest["kind"] == "DeviceClass":
                self.client.delete(f"{fleet.COLLECTIONS['DeviceClass']}/{manifest['metadata']['name']}")


def put_into_rack(lab: Lab, node: str, rack: str) -> None:
    lab.client.merge_patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {RACK: rack}}})


def racks_of(lab: Lab, name: str) -> list[str]:
    """Return the racks of a gang's pods, in order."""
    nodes = [lab.client.get(f"/api/v1/nodes/{node}") for node in lab.pinned_to(name)]
    return sorted(node["metadata"]["labels"][RACK] for node in nodes)


def results_of(claim: Any) -> Any:
    return claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])


def exactly(lab: Lab, count: int = 1, **more: Any) -> Manifest:
    """Ask for so many devices of the lab's class."""
    return {"name": "gpu", "exactly": {"deviceClassName": lab.driver, "count": count, **more}}


def of_profile(lab: Lab, profile: str, **more: Any) -> Manifest:
    """Ask for a device by its profile."""
    expression = f"device.attributes['{lab.driver}'].profile == '{profile}'"
    exactly = {"deviceClassName": lab.driver, "selectors": [{"cel": {"expression": expression}}], **more}
    return {"name": "part", "exactly": exactly}


PARTS = {"whole": [range(4)], "half": [range(2), range(2, 4)], "quarter": [range(at, at + 1) for at in range(4)]}


def partitioned(lab: Lab, name: str, *, gpus: int) -> str:
    """A node of GPUs of 40Gi, each whole, in halves and in quarters, in the manner of MIG."""
    return lab.node(name, *partitioned_devices(gpus))


def partitioned_devices(gpus: int) -> tuple[list[Manifest], list[Manifest]]:
    """The devices and shared counters of such GPUs."""
    sets = []
    devices: list[Manifest] = []
    for gpu in range(gpus):
        slices = {f"slice-{at}": {"value": "1"} for at in range(4)}
        sets.append({"name": f"gpu-{gpu}", "counters": {"memory": {"value": "40Gi"}, **slices}})
        for profile, places in PARTS.items():
            for number, place in enumerate(places):
                drawn = {f"slice-{at}": {"value": "1"} for at in place}
                drawn["memory"] = {"value": f"{10 * len(place)}Gi"}
                devices.append(
                    {
                        "name": f"gpu-{gpu}-{profile}-{number}",
                        "attributes": {"profile": {"string": profile}},
                        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": drawn}],
                    }
                )
    return devices, sets


def plain(count: int, prefix: str = "gpu", **more: Any) -> list[Manifest]:
    return [{"name": f"{prefix}-{at}", **more} for at in range(count)]


def shared(count: int, *, memory: str = "40Gi") -> list[Manifest]:
    """Devices that several claims may have parts of, in steps of 4Gi."""
    policy = {"default": "4Gi", "validRange": {"min": "4Gi", "step": "4Gi"}}
    capacity = {"memory": {"value": memory, "requestPolicy": policy}}
    return plain(count, allowMultipleAllocations=True, capacity=capacity)


def share(memory: str, device_class: str) -> Manifest:
    capacity = {"requests": {"memory": memory}}
    return {"name": "share", "exactly": {"deviceClassName": device_class, "capacity": capacity}}
