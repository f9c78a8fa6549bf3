"""Carries a script of `medleys` out on a real control plane: gangs, outsiders, and everything that may go wrong."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

from tests.controlplane import ApiError, fleet, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.e2e import teams
from tests.e2e.deaths import AWAY, Deaths
from tests.e2e.medleys import Act, Shape, Step
from tests.e2e.teams import GROUP
from tests.e2e.witnesses import Witness

MOST_ALIVE = 16
"""Gangs that may run or wait at a time, beside those that wait for ever."""

SECONDS_FOR_PLACE = 60.0
"""How long a gang is waited for before the next one is submitted though there are many."""

OUTSIDE = "outside"
TOLERANT_CLAIM = "tolerant"
SECOND_QUEUE = "second-default"
WEBHOOKS = [
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/muster" for kind in ("validating", "mutating")
]


@dataclass(slots=True, kw_only=True)
class Fire(Deaths):
    """One run. settings: those that protect the devices."""

    others: Namespace
    witness: Witness
    settings: Mapping[str, Any]
    alive: dict[str, Shape] = field(default_factory=dict)
    """Gangs that have not ended, as far as is known."""
    held: dict[str, Shape] = field(default_factory=dict)
    """Gangs that can never start."""
    disturbed: set[str] = field(default_factory=set)
    """Gangs of which single pods were deleted: a Job makes those anew, and the others go on."""
    deleted: set[str] = field(default_factory=set)

    def run(self, steps: list[Step]) -> None:
        """Carry the steps out, and leave Muster running and the devices protected."""
        acts: Mapping[Act, Callable[[Step], None]] = {
            Act.SUBMIT: self._submit,
            Act.OUTSIDER: self._outsider,
            Act.DELETE_GANG: self._delete_gang,
            Act.DELETE_POD: self._delete_pod,
            Act.ROB: lambda _: self._rob(),
            Act.KILL: lambda _: self.kill(),
            Act.KILL_WRITING: lambda step: self.kill_writing(step.which),
            Act.FREEZE: lambda _: self.freeze(),
            Act.KILL_API_SERVER: lambda _: self.kill_api_server(),
            Act.LOSE_NODE: self._lose_node,
            Act.NODE_BACK: self._node_back,
            Act.LOSE_DEVICE: lambda step: self._devices(step, without=1),
            Act.DEVICE_BACK: lambda step: self._devices(step, without=0),
            Act.UNPROTECT: lambda _: self._unprotect(),
            Act.PROTECT: lambda _: self._protect(),
        }
        for step in steps:
            self.keep_muster_up()
            acts[step.act](step)
            self.counts[step.act.name] += 1
            time.sleep(step.pause)
        self.settle()

    # Gangs.

    def _submit(self, step: Step) -> None:
        assert step.shape is not None
        self._wait_for_place()
        name, shape, space = f"gang-{step.gang}", step.shape, self.lab.namespace
        body = teams.job(name, pods=shape.pods, template=name, annotations={workloads.RUNTIME: f"{step.seconds}s"})
        body["spec"]["backoffLimit"] = 1000
        spec = body["spec"]["template"]["spec"]
        more = {"constraints": list(shape.constraints)} if shape.constraints else {}
        if shape.shared:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            self.create(space.claims, workloads.claim(name, *shape.requests, **more))
        else:
            self.create(space.templates, workloads.claim_template(name, *shape.requests, **more))
        if shape.cpu:
            spec["containers"][0]["resources"] |= {"requests": {"cpu": shape.cpu}}
        self.create(self.lab.team.jobs, body)
        self.counts[shape.kind] += 1
        (self.held if shape.held else self.alive)[name] = shape

    def _wait_for_place(self) -> None:
        deadline = time.monotonic() + SECONDS_FOR_PLACE
        while len(self.alive) >= MOST_ALIVE and time.monotonic() < deadline:
            self.keep_muster_up()
            self.forget_ended()
            time.sleep(0.5)

    def forget_ended(self) -> None:
        """Drop gangs that have run whole; an API server that is away has not said so."""
        try:
            jobs = self.lab.client.items(self.lab.team.jobs)
        except AWAY:
            return
        for job in jobs:
            if job["status"].get("succeeded", 0) == job["spec"]["completions"]:
                self.alive.pop(job["metadata"]["name"], None)

    def _delete_gang(self, step: Step) -> None:
        self.delete(f"gang-{step.gang}")

    def delete(self, name: str) -> None:
        space = self.lab.namespace
        self.insist(lambda: self.lab.client.delete(f"{self.lab.team.jobs}/{name}?propagationPolicy=Background"))
        self.insist(lambda: self.lab.client.delete(f"{space.claims}/{name}"))
        self.alive.pop(name, None)
        self.held.pop(name, None)
        self.deleted.add(name)

    def _delete_pod(self, step: Step) -> None:
        name = f"gang-{step.gang}"
        pods = self.insist(lambda: self.lab.team.pods(name))
        if name not in self.alive or not pods:
            return
        self.disturbed.add(name)
        pod = pods[step.which % len(pods)]["metadata"]["name"]
        self.insist(lambda: self.lab.client.delete(f"{self.lab.namespace.pods}/{pod}?gracePeriodSeconds=0"))

    def _outsider(self, step: Step) -> None:
        name = f"outside-{self.counts[Act.OUTSIDER.name]}"
        pod = workloads.pod(
            name, template=OUTSIDE, labels={OUTSIDE: "true"}, annotations={workloads.RUNTIME: f"{1 + step.which % 3}s"}
        )
        self.create(self.others.pods, pod)

    def _rob(self) -> None:
        self.witness.robbing = 1

    # Hardware.

    def _node(self, step: Step) -> str:
        names: list[str] = [one["metadata"]["name"] for one in self.lab.hardware if one["kind"] == "Node"]
        return names[step.which % len(names)]

    def _parts(self, node: str) -> list[Manifest]:
        """Return a node and its slices as they were made."""
        return [
            one
            for one in self.lab.hardware
            if one["metadata"]["name"] == node or one["spec"].get("pool", {}).get("name") == node
        ]

    def _lose_node(self, step: Step) -> None:
        for one in reversed(self._parts(self._node(step))):
            self.insist(partial(self.lab.client.delete, _path(one)))

    def _node_back(self, step: Step) -> None:
        for one in self._parts(self._node(step)):
            self.create(fleet.COLLECTIONS[one["kind"]], one)

    def _devices(self, step: Step, *, without: int) -> None:
        """Publish a pool anew, without some of its devices."""
        for one in self._parts(self._node(step)):
            found = self.insist(partial(self.lab.client.find, _path(one)))
            if one["kind"] != "ResourceSlice" or found is None:
                continue
            spec: Manifest = {"pool": {"generation": found["spec"]["pool"]["generation"] + 1}}
            if one["spec"].get("devices"):
                spec["devices"] = one["spec"]["devices"][without:]
            self.insist(partial(self.lab.client.merge_patch, _path(one), {"spec": spec}))

    # Protection.

    def _unprotect(self) -> None:
        if self.settings.get("coverage"):
            self._narrow()
            body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": SECOND_QUEUE}}
            spec = {"default": True, "namespaceSelector": {"matchLabels": {"a": "b"}}}
            self.insist(lambda: self.lab.client.apply(f"{GROUP}/queues/{SECOND_QUEUE}", {**body, "spec": spec}))
        elif self.settings:
            self.await_start()
            self.lab.muster.configure()
            self.kill()

    def _protect(self) -> None:
        if self.settings.get("coverage"):
            self.insist(lambda: self.lab.client.delete(f"{GROUP}/queues/{SECOND_QUEUE}"))
        elif self.settings:
            self.await_start()
            self.lab.muster.configure(**self.settings)
            self.kill()

    def _narrow(self) -> None:
        """Have the webhooks overlook a namespace while a pod comes; Muster mends it, but the pod may be quicker."""
        elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [self.others.name]}
        for path in WEBHOOKS:
            webhooks = self.insist(partial(self.lab.client.get, path))["webhooks"]
            for webhook in webhooks:
                webhook["namespaceSelector"] = {"matchExpressions": [elsewhere]}
            self.insist(partial(self.lab.client.merge_patch, path, {"webhooks": webhooks}))
        try:
            self._outsider(Step(act=Act.OUTSIDER))
        except ApiError as error:
            # One of the two webhooks was mended by then.
            if error.code != HTTPStatus.FORBIDDEN:
                raise
            self.counts["outsiders refused"] += 1
        self.counts[Act.OUTSIDER.name] += 1


def _path(one: Manifest) -> str:
    return f"{fleet.COLLECTIONS[one['kind']]}/{one['metadata']['name']}"
