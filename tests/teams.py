"""Two teams in namespaces of their own, whose names must not be found in what the other one may read.

`Teams` is a cluster in memory that also keeps all that Muster writes as the API server would store it, by the namespace
whose users read it; objects of no namespace are read by everybody. `SCENES` has all that may happen between the teams.
"""

import functools
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from admission import default_ports
from admission.api.kubernetes import claims, device_taint_rules
from admission.api.kubernetes.claims import AllocatedDevice, Allocation, Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.pods import Pod
from admission.api.muster import gangs
from admission.api.muster.gangs import GangReport
from admission.api.muster.queues import StopPolicy
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.names import QueueName, Uid
from admission.cycle import cycle
from admission.errors import ClusterUnavailableError
from admission.kube.writers import events, status_encoding
from admission.scheduling.checks import demand
from admission.simulation import in_memory
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.unit.cycle.fences import fence
from tests.unit.cycle.jobs import Jobs, Play

OURS, THEIRS = "plain-ns", "hidden-ns"
"""The namespaces, also of the names of what is in them: `mine` and `merger-with-acme`."""

EVERYBODY = ""
SECRETS = {
    OURS: (THEIRS, "merger-with-acme"),
    THEIRS: (OURS, "our-work"),
    EVERYBODY: (OURS, "our-work", THEIRS, "merger-with-acme"),
}
"""What users of a namespace must not read; those of none may read of neither."""

NAMES = {OURS: "our-work", THEIRS: "merger-with-acme"}
LOWER = {"withinQueue": "LowerPriority"}
ANY = {"reclaim": "Any"}


class Teams(Jobs):
    """written: what was written, as JSON, by the namespace of its readers. stored: the Gangs and Queues, by key."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder, graceful=True)
        spaces = {
            name: Namespace(meta=Meta(name=name), labels={"kubernetes.io/metadata.name": name})
            for name in (OURS, THEIRS)
        }
        self._rest = replace(self._rest, namespaces={**self._rest.namespaces, **spaces})
        self.written: list[tuple[str, Json]] = []
        self.stored: dict[str, Json] = {}
        self.queue_objects: dict[str, Json] = {}
        self._uids: set[str] = set()

    def come(self, namespace: str, what: str, *, at: datetime | None = None, **job: Any) -> str:
        """Submit a job of a team; return its name."""
        name = f"{NAMES[namespace]}-{what}"
        self.submit(name, at=at, namespace=namespace, **job)
        return name

    def change_queue(self, name: str, **changes: Any) -> None:
        changed = replace(self._rest.queues[QueueName(name)], **changes)
        self._rest = replace(self._rest, queues={**self._rest.queues, changed.name: changed})

    def put_claim(self, namespace: str, device: str = "", *, is_ours: bool = False, **exactly: Any) -> str:
        """Add a claim that is of no gang, perhaps with a device; return its key. is_ours: Muster gave it the device."""
        manifest = claim_manifest(f"{NAMES[namespace]}-stray", 1, owner="-", namespace=namespace)
        manifest["metadata"] |= {"ownerReferences": []}
        manifest["spec"]["devices"]["requests"][0]["exactly"] |= exactly
        claim = claims.decode(manifest)
        if device:
            given = AllocatedDevice(given=RequestDevice(request="gpus", device=DeviceId(CLASS, "a", device)))
            meta = replace(claim.meta, annotations={names.PLACEMENT: "allocated"} if is_ours else {})
            claim = replace(claim, meta=meta, allocation=Allocation(devices=(given,)), reserved_for=(Uid("a-pod"),))
        self._claims[claim.meta.key] = claim
        return claim.meta.key

    def fail(self, call: str) -> None:
        self.fails[call] = ClusterUnavailableError("it does not answer")

    # What Muster writes.

    async def gang(self, report: GangReport) -> None:
        self._note_uids()
        await super().gang(report)
        if report.over:
            self.stored.pop(report.key, None)
            return
        before = self.stored.get(report.key, {})
        status = status_encoding.gang_status(report, before.get("status", {}), now=self.now)
        obj = status_encoding.gang(report) | {"status": status}
        obj["metadata"] |= {"uid": in_memory.uid_of("Gang", report.key), "creationTimestamp": NOON.isoformat()}
        if obj != before:
            self.stored[report.key] = json.loads(json.dumps(obj))
            self.written.append((report.namespace, self.stored[report.key]))
            self._gangs[report.key] = gangs.decode(self.stored[report.key])

    async def queue(self, report: QueueReport) -> None:
        await super().queue(report)
        status = status_encoding.queue_status(report, {}, now=self.now)
        self.queue_objects[report.name] = status
        self.written.append((EVERYBODY, {"kind": "Queue", "status": status}))

    async def conditions(self, report: ConditionReport) -> None:
        await super().conditions(report)
        self.written.append((EVERYBODY, status_encoding.condition_status(report, {}, now=self.now)))

    async def notify(self, notice: Notice) -> None:
        await super().notify(notice)
        event = events.event(notice, "an-event", instance="test", at=self.now)
        self.written.append((notice.namespace or EVERYBODY, event))

    # What is to be seen of it.

    def leaks(self) -> Iterator[str]:
        """Yield what users of a namespace read of the other one, without UIDs, which say nothing."""
        objects = self._note_uids()
        uids = sorted(self._uids, key=len, reverse=True)
        texts = [(namespace, json.dumps(obj)) for namespace, obj in self.written]
        texts += [(one.meta.namespace, repr(one)) for one in objects]
        for namespace, text in texts:
            shown = functools.reduce(lambda known, uid: known.replace(uid, "UID"), uids, text)
            if any(secret in shown for secret in SECRETS.get(namespace, ())):
                yield f"{namespace or 'everybody'}: {shown}"

    def _note_uids(self) -> list[Pod | Claim | Job]:
        """Return all objects, whose UIDs are remembered, since those of the builders have names in them."""
        objects: list[Pod | Claim | Job] = [*self._pods.values(), *self._claims.values(), *self._jobs.values()]
        self._uids |= {str(one.meta.uid) for one in objects}
        return objects

    def of(self, namespace: str) -> list[Json]:
        """Return what was written for users of a namespace."""
        return [obj for written, obj in self.written if written == namespace]

    def referring(self) -> set[str]:
        """Return the reasons and fields of Gangs whose words have references, and those of Queues."""
        found: set[str] = set()
        for _, obj in self.written:
            status = obj.get("status", {})
            found |= {status[part]["reason"] for part in ("hold", "evicted") if status.get(part, {}).get("references")}
            found |= {field for field in ("startReferences", "placementReferences") if field in status}
            if obj.get("kind") == "Queue":
                found |= {one["detail"] for one in status.get("references", ())}
        return found

    def events(self) -> set[str]:
        return {str(notice.reason) for notice in self.notices}


@dataclass
class Scene:
    """What happened: the cluster, and who leads in it."""

    cluster: Teams
    play: Play

    @property
    def barriers(self) -> default_ports.NoFences:
        fences = self.play.leader.ports.fences
        assert isinstance(fences, default_ports.NoFences)
        return fences

    async def cycles(self, times: int = 3) -> None:
        await self.play.forget_changes(times)

    def reports(self) -> list[GangReport]:
        return [*self.cluster.gangs.values()]

    def hold(self, name: str) -> str:
        """Return the reason for which the gang of a job waits."""
        found = next(report for key, report in self.cluster.gangs.items() if key.partition("/")[2].startswith(name))
        return str(found.hold.reason) if found.hold is not None else ""


def a_scene(builder: ClusterBuilder) -> Scene:
    cluster = Teams(builder)
    return Scene(cluster, Play(cluster))


def one_queue(*, gpus: int = 4, quota: int = 100, **queue: Any) -> ClusterBuilder:
    return a_cluster().node("a", gpus=gpus).queue("shared", gpus=quota, **queue)


def two_queues(**queue: Any) -> ClusterBuilder:
    """Return two queues under one, each of half of the devices."""
    builder = a_cluster().node("a", gpus=4).queue("top", gpus=0)
    for name in ("left", "right"):
        builder.queue(name, gpus=2, parent="top", **queue)
    return builder


async def busy() -> Scene:
    scene = a_scene(one_queue())
    scene.cluster.come(THEIRS, "first", queue="shared", pods=2)
    scene.cluster.come(OURS, "first", queue="shared")
    await scene.cycles()
    scene.cluster.come(OURS, "second", queue="shared", pods=3)
    await scene.cycles()
    return scene


async def strict() -> Scene:
    scene = a_scene(one_queue(queueingStrategy="StrictFIFO"))
    scene.cluster.come(THEIRS, "large", queue="shared", pods=5)
    await scene.cycles()
    scene.cluster.come(OURS, "small", queue="shared")
    await scene.cycles()
    return scene


async def backfilled() -> Scene:
    runtime: dict[str, Any] = {"annotations": {names.RUNTIME: "1h"}}
    scene = a_scene(one_queue())
    scene.cluster.come(THEIRS, "runs", queue="shared", pods=2, **runtime)
    await scene.cycles()
    scene.cluster.come(OURS, "head", queue="shared", pods=4, **runtime)
    await scene.cycles()
    scene.cluster.come(THEIRS, "late", queue="shared", pods=2)
    await scene.cycles()
    return scene


async def unknown_ends() -> Scene:
    scene = a_scene(one_queue())
    scene.cluster.come(THEIRS, "endless", queue="shared", pods=2)
    await scene.cycles()
    scene.cluster.come(OURS, "head", queue="shared", pods=4)
    await scene.cycles()
    return scene


async def preempted() -> Scene:
    scene = a_scene(one_queue(preemption=LOWER))
    scene.cluster.come(THEIRS, "low", queue="shared", pods=4)
    await scene.cycles()
    scene.cluster.come(OURS, "high", queue="shared", pods=4, priority=10)
    await scene.cycles()
    # What is promised to the one is taken for all others.
    scene.cluster.come(THEIRS, "late", queue="shared", pods=4, priority=5)
    await scene.cycles()
    scene.play.succeed()
    await scene.cycles()
    scene.cluster.end_grace()
    await scene.cycles(4)
    return scene


async def preempted_for_quota() -> Scene:
    scene = a_scene(one_queue(quota=4, gpus=8, preemption=LOWER))
    scene.cluster.come(THEIRS, "low", queue="shared", pods=4)
    await scene.cycles()
    scene.cluster.come(OURS, "high", queue="shared", pods=4, priority=10)
    await scene.cycles()
    return scene


async def reclaimed() -> Scene:
    scene = a_scene(two_queues(preemption=ANY))
    for what in ("owns", "borrows"):
        scene.cluster.come(THEIRS, what, queue="left", pods=2)
        await scene.cycles()
    scene.cluster.come(OURS, "owns", queue="right", pods=2)
    await scene.cycles()
    scene.cluster.end_grace()
    await scene.cycles(4)
    return scene


async def taken_meanwhile() -> Scene:
    """What was granted is given to a stray claim before Muster writes it, again and again."""
    scene = a_scene(one_queue(gpus=1))
    name = scene.cluster.come(OURS, "unlucky", queue="shared")
    stray = ""
    for _ in range(4):
        scene.cluster._claims.pop(stray, None)
        scene.cluster.fail(f"allocate {name}-0-gpus")
        await scene.cycles(1)
        stray = scene.cluster.put_claim(THEIRS, device="gpu-0", is_ours=True)
        await scene.cycles(1)
        del scene.cluster.fails[f"allocate {name}-0-gpus"]
    await scene.cycles(1)
    return scene


async def taken_after_the_first_gate() -> Scene:
    """A pod of a gang is let in, and another one loses its device to a stray claim."""
    scene = a_scene(one_queue(gpus=2))
    name = scene.cluster.come(OURS, "halved", queue="shared", pods=2)
    scene.cluster.fail(f"open {name}-1")
    scene.cluster.now += timedelta(seconds=1)
    await cycle.run(scene.play.leader, scene.cluster.now)
    key = f"{OURS}/{name}-1-gpus"
    allocation = scene.cluster._claims[key].allocation
    assert allocation is not None
    scene.cluster._claims[key] = replace(scene.cluster._claims[key], allocation=None)
    scene.cluster.put_claim(THEIRS, device=allocation.devices[0].device.device, is_ours=True)
    scene.cluster.now += timedelta(seconds=1)
    await cycle.run(scene.play.leader, scene.cluster.now)
    return scene


async def tolerated() -> Scene:
    """A claim of the others tolerates every taint, so that a fence does not count."""
    scene = a_scene(one_queue(placement="Allocate"))
    scene.cluster.put_claim(THEIRS, tolerations=[{"operator": "Exists"}])
    scene.cluster.come(OURS, "pinned", queue="shared")
    await scene.cycles()
    return scene


async def fenced_in_vain() -> Scene:
    """The same, while the rule of the fence is still there."""
    scene = a_scene(one_queue(placement="Allocate"))
    spec = {"deviceSelector": {"driver": CLASS}, "taint": {"key": "muster.dev/fence", "effect": "NoSchedule"}}
    rule = device_taint_rules.decode({"metadata": {"name": f"muster-fence-{CLASS}"}, "spec": spec})
    scene.cluster._rest = replace(scene.cluster._rest, taint_rules={rule.meta.name: rule})
    scene.cluster.put_claim(THEIRS, tolerations=[{"operator": "Exists"}])
    scene.cluster.come(OURS, "barred", queue="shared")
    await scene.cycles()
    return scene


async def breached() -> Scene:
    scene = a_scene(one_queue(placement="Allocate"))
    stray = scene.cluster.put_claim(THEIRS)
    await scene.cycles()
    del scene.cluster._claims[stray]
    scene.cluster.put_claim(THEIRS, device="gpu-3")
    await scene.cycles()
    scene.cluster.come(OURS, "pinned", queue="shared")
    await scene.cycles()
    return scene


async def fenced_later() -> Scene:
    """A new fence waits for a gang of the others for which kube-scheduler is choosing devices."""
    scene = a_scene(one_queue(placement="Auto"))
    scene.barriers.barriers = replace(fence(), rules={}, served=False)
    scene.cluster.come(THEIRS, "pinned", queue="shared")
    scene.cluster.now += timedelta(seconds=1)
    await cycle.run(scene.play.leader, scene.cluster.now)
    scene.barriers.barriers = replace(fence(), rules={})
    scene.cluster.come(OURS, "waits", queue="shared")
    scene.cluster.now += timedelta(seconds=1)
    await cycle.run(scene.play.leader, scene.cluster.now)
    return scene


async def deleted() -> Scene:
    scene = a_scene(one_queue())
    scene.cluster.come(THEIRS, "runs", queue="shared")
    await scene.cycles()
    queue = scene.cluster.snapshot().queues[QueueName("shared")]
    scene.cluster.change_queue("shared", meta=replace(queue.meta, finalizers=(names.IN_USE,)))
    scene.cluster.delete_queue(QueueName("shared"), scene.cluster.now)
    scene.cluster.come(OURS, "late", queue="shared")
    await scene.cycles()
    return scene


async def drained() -> Scene:
    scene = a_scene(one_queue())
    scene.cluster.come(THEIRS, "runs", queue="shared", pods=2)
    scene.cluster.come(OURS, "runs", queue="shared", pods=2)
    await scene.cycles()
    scene.cluster.change_queue("shared", stop_policy=StopPolicy.HOLD_AND_DRAIN)
    await scene.cycles()
    return scene


async def ended() -> Scene:
    scene = a_scene(one_queue(maxRuntime="10s", startTimeout="5s"))
    scene.cluster.come(THEIRS, "runs", queue="shared", pods=2)
    scene.cluster.come(OURS, "runs", queue="shared", pods=2)
    await scene.cycles()
    scene.cluster.now += timedelta(seconds=20)
    await scene.cycles()
    return scene


async def not_started() -> Scene:
    scene = a_scene(one_queue(startTimeout="5s"))
    for namespace in (OURS, THEIRS):
        scene.cluster.come(namespace, "slow", queue="shared", pods=2)
    for _ in range(3):
        scene.cluster.now += timedelta(seconds=4)
        await cycle.run(scene.play.leader, scene.cluster.now)
    return scene


async def same_name() -> Scene:
    """Gangs of one name in both namespaces, of too many pods in each."""
    scene = a_scene(one_queue())
    shared: dict[str, Any] = {"labels": {names.GANG: "g"}, "annotations": {names.GANG_SIZE: "1"}}
    for namespace in (OURS, THEIRS):
        for what in ("one", "two"):
            scene.cluster.come(namespace, what, queue="shared", **shared)
    await scene.cycles()
    return scene


async def failed() -> Scene:
    """Muster fails of a gang, with an exception that names one of the others."""
    scene = a_scene(one_queue())
    scene.cluster.come(OURS, "broken", queue="shared")
    with mock.patch.object(demand, "demands", side_effect=KeyError(f"{THEIRS}/merger-with-acme-first")):
        await scene.cycles(1)
    return scene


SCENES: dict[str, Callable[[], Awaitable[Scene]]] = {
    scene.__name__: scene
    for scene in (
        *(busy, strict, backfilled, unknown_ends, preempted, preempted_for_quota, reclaimed, taken_meanwhile),
        *(taken_after_the_first_gate, tolerated, fenced_in_vain, breached, fenced_later, deleted, drained, ended),
        *(not_started, same_name, failed),
    )
}


_SEEN: dict[str, Scene] = {}


async def seen(name: str) -> Scene:
    """Return a scene that has been played, at its end, for those who only look at it: they share it."""
    if name not in _SEEN:
        _SEEN[name] = await SCENES[name]()
    return _SEEN[name]
