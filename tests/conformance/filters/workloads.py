"""Workloads that `muster simulate` lets in, carried out by kube-scheduler's own filters as their controllers make pods.

    python -m tests.conformance.filters.workloads 0 200      # the worlds of these seeds, on every release

One half of the seeds are batch Jobs that may start with fewer pods, the other half JobSets whose Jobs are each alone in
a domain. What is admitted is good if the planned pods start in some order, and after them all pods that follow; and of
a Job, if no more pods of it find a place. What is held is tried in every way, pod after pod. Prints each seed with a
flaw. Needs Go once, to build Kubernetes.
"""

import argparse
import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from admission.api.values import names
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.dra.planner.pod_groups import natural
from admission.simulation import expand, offline
from admission.simulation.offline import GangOutcome
from admission.workloads.kinds import jobset
from tests.conformance.filters import plans, worlds
from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import HOSTNAME, RACK, merge
from tests.controlplane.filters import Oracle

Json = dict[str, Any]
Way = tuple[tuple[Json, str], ...]
"""Pods with their nodes, in the order in which they come."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
QUEUE: Json = {"namespaceSelector": {}, "default": True, "quotas": []}
LOCAL = "local"
RULES = ("apart", "together", "spread", "spread", "port", "rack", "volume", "tolerates")
RULES_OF_PARTS = ("spread", "spread", "spread", "volume", "volume", "volume", "together", "tolerates")
"""Those that pods of one domain can keep together, more often than not."""
APPS = ("a", "b")

KINDS: Mapping[str, tuple[str, str]] = {
    "namespaces": ("v1", "Namespace"),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "pvs": ("v1", "PersistentVolume"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
}
"""What a world consists of, and which objects these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """Pods that are alike: how many, and what makes the one of a number, after those that are there already."""

    pods: int
    make: Callable[[int, Way], Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A world with a workload, and its pods. first: those that Muster decides about; later: those that follow.

    needed: how many of the first ones have to start together.
    """

    world: Json
    workload: Json
    first: tuple[Sort, ...]
    later: tuple[Sort, ...] = ()
    needed: int = field(default=0)


# Worlds.


def seeded(seed: int, version: str) -> Case:
    """Return the case of a seed."""
    draw = Draw(seed)
    world = _world(draw, version)
    return _exclusive(draw, world) if seed % 2 else _elastic(draw, world)


def _world(draw: Draw, version: str) -> Json:
    """Return some nodes in racks, with pods that run on them and volumes."""
    names_ = [f"n{at}" for at in range(draw.number(2, 4))]
    racks = draw.number(1, 3)
    return {
        "version": version,
        "namespaces": [{"metadata": {"name": "default"}}],
        "nodes": [_node(draw, name, racks) for name in names_],
        "pods": [_running(draw, f"b{at}", draw.pick(names_)) for at in range(draw.number(0, 2))],
        "pvs": [_volume(f"v{at}", draw.pick(names_)) for at in range(draw.number(1, 6))],
        "storageClasses": [
            {
                "metadata": {"name": LOCAL},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        ],
    }


def _node(draw: Draw, name: str, racks: int) -> Json:
    labels = {HOSTNAME: name} | ({RACK: f"r{draw.number(1, racks)}"} if draw.chance(93) else {})
    taints = [{"key": "own", "effect": "NoSchedule"}] if draw.chance(12) else []
    resources = {"cpu": str(draw.number(2, 5)), "memory": "8Gi", "pods": "20"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": resources},
    }


def _running(draw: Draw, name: str, node: str) -> Json:
    pod = _pod(name, draw.pick(APPS), _spec("1"))
    if draw.chance(30):
        merge(pod["spec"], _apart(HOSTNAME, draw.pick(APPS)))
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def _volume(name: str, node: str) -> Json:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": LOCAL,
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def _spec(cpu: str) -> Json:
    return {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}


def _apart(key: str, app: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def _ruled(draw: Draw, own: str, rules: Sequence[str] = RULES) -> Json:
    """Return a pod's spec with up to two rules. own: the value of its label."""
    spec = _spec(str(draw.weighted([(1, 2), (2, 1)])))
    for rule in draw.some(rules, most=2):
        key, app = draw.pick((HOSTNAME, HOSTNAME, RACK)), draw.pick((own, own, *APPS))
        selector = {"labelSelector": {"matchLabels": {"app": app}}}
        if rule == "apart":
            merge(spec, _apart(key, app))
        elif rule == "together":
            merge(spec, {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": key, **selector}]}}})
        elif rule == "spread":
            policies = {"nodeAffinityPolicy": "Ignore"} if draw.chance(20) else {}
            policies |= {"nodeTaintsPolicy": "Honor"} if draw.chance(20) else {}
            least = {"minDomains": draw.number(2, 3)} if draw.chance(15) else {}
            how = {"maxSkew": draw.number(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{"topologyKey": key, **how, **selector, **policies, **least}]
        elif rule == "port":
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        elif rule == "rack":
            spec["nodeSelector"] = {RACK: draw.pick(("r1", "r2"))}
        elif rule == "volume":
            asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            template = {"volumeClaimTemplate": {"spec": {**asked, "storageClassName": LOCAL}}}
            spec["volumes"] = [{"name": "disk", "ephemeral": template}]
        else:
            spec["tolerations"] = [{"key": "own", "operator": "Exists"}]
    return spec


def _pod(name: str, app: str, spec: Json, labels: Mapping[str, str] | None = None) -> Json:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": app, **(labels or {})}}
    return {"metadata": meta, "spec": deepcopy(spec)}


def _template(app: str, spec: Json, annotations: Mapping[str, str] | None = None) -> Json:
    labels = {"app": app, names.QUEUE: "team"}
    return {
        "metadata": {"labels": labels, "annotations": dict(annotations or {})},
        "spec": {"restartPolicy": "Never", **spec},
    }


def _elastic(draw: Draw, world: Json) -> Case:
    """Return a Job that may start with fewer than all of its pods."""
    pods = draw.number(2, 5)
    needed, spec = draw.number(1, pods), _ruled(draw, "a")
    template = _template("a", spec, {names.GANG_MIN: str(needed)} if needed < pods else {})
    asked = {"parallelism": pods, "completions": pods, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "g", "namespace": "default"}, "spec": asked}
    sort = Sort(pods=pods, make=lambda number, _way: _pod(f"g-{number}", "a", spec))
    return Case(world=world, workload=job, first=(sort,), needed=needed)


def _exclusive(draw: Draw, world: Json) -> Case:
    """Return a JobSet, each Job of which is alone in a domain."""
    key, entries, first, later = draw.pick((RACK, RACK, HOSTNAME)), list[Json](), list[Sort](), list[Sort]()
    for app in APPS[: draw.weighted([(1, 70), (2, 30)])]:
        replicas, pods = draw.weighted([(1, 70), (2, 30)]), draw.number(2, 4)
        spec = _ruled(draw, app, RULES_OF_PARTS)
        asked = {"parallelism": pods, "completions": pods, "template": _template(app, spec)}
        entries.append({"name": app, "replicas": replicas, "template": {"spec": asked}})
        for name in (f"g-{app}-{number}" for number in range(replicas)):
            own = _OfJob(name=name, app=app, spec=spec, key=key, world=world)
            first.append(Sort(pods=1, make=own.leader))
            later.append(Sort(pods=pods - 1, make=own.follower))
    meta = {"name": "g", "namespace": "default", "annotations": {jobset.EXCLUSIVE: key}}
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta}
    workload = {**made, "spec": {"replicatedJobs": entries}}
    return Case(world=world, workload=workload, first=tuple(first), later=tuple(later), needed=len(first))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfJob:
    """The pods of one Job of a JobSet, as its webhook completes them. key: of the domains."""

    name: str
    app: str
    spec: Json
    key: str
    world: Json

    def leader(self, _number: int, _way: Way) -> Json:
        pod = self._pod(0)
        affinity = jobset.exclusive_affinity(self.key, jobset.job_key("default", self.name))
        merge(pod["spec"], {"affinity": affinity})
        return pod

    def follower(self, number: int, way: Way) -> Json:
        pod = self._pod(number + 1)
        node = next(node for other, node in way if other["metadata"]["name"] == f"{self.name}-0")
        labels = next(one["metadata"]["labels"] for one in self.world["nodes"] if one["metadata"]["name"] == node)
        merge(pod["spec"], {"nodeSelector": {self.key: labels[self.key]}})
        return pod

    def _pod(self, number: int) -> Json:
        labels = {jobset.JOB_KEY: jobset.job_key("default", self.name)}
        return _pod(f"{self.name}-{number}", self.app, self.spec, labels)


# What Muster says, and what kube-scheduler does.


def simulated(case: Case) -> GangOutcome:
    """Return what `muster simulate` says of the workload."""
    world = case.world
    objects: list[Json] = [
        {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "team"}, "spec": QUEUE},
        *(
            {"apiVersion": version, "kind": kind, **one}
            for name, (version, kind) in KINDS.items()
            for one in world[name]
        ),
        case.workload,
    ]
    profile = compatibility.profile(Release(world["version"]))
    (gang,) = asyncio.run(offline.simulate(expand.expand(deepcopy(objects), profile=profile))).gangs
    return gang


def flaw(case: Case, said: GangOutcome, oracle: Oracle) -> str | None:
    """Return what is wrong with what Muster says; None where nothing is."""
    if said.not_simulated:
        return None
    trial = _Trial(case.world, oracle)
    if not said.plan:
        ways = trial.ways(_fewest(case), ())
        found = next((way for way in ways if trial.has_way(case.later, way)), None)
        return f"it is held ({said.message}), but {_text(found)} start" if found is not None else None
    way = trial.ordered(_planned(case, said))
    if way is None:
        return f"the plan does not start: {[(pod.pod, pod.node) for pod in said.plan]}"
    if not said.later and not trial.has_way(case.later, way):
        return f"after {_text(way)} not all that follow find a place"
    if case.later or len(way) == case.first[0].pods:
        return None
    more = next(trial.ways((Sort(pods=len(way) + 1, make=case.first[0].make),), ()), None)
    return f"it starts with {len(way)} pods, but {_text(more)} start" if more is not None else None


def _fewest(case: Case) -> tuple[Sort, ...]:
    return case.first if case.later else (Sort(pods=case.needed, make=case.first[0].make),)


def _planned(case: Case, said: GangOutcome) -> Way:
    """Return the planned pods as their controller makes them. A simulation numbers those of a ReplicatedJob through."""
    planned = sorted(said.plan, key=lambda pod: natural(pod.pod))
    made = [sort.make(number, ()) for sort in case.first for number in range(sort.pods)]
    return tuple((pod, one.node) for pod, one in zip(made, planned, strict=False))


def _text(way: Way) -> str:
    return ", ".join(f"{pod['metadata']['name']} on {node}" for pod, node in way)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Asks kube-scheduler about pods, each pinned to its node as Muster pins it."""

    world: Json
    oracle: Oracle

    def ordered(self, way: Way) -> Way | None:
        """Return pods in an order in which they start on their nodes; None if there is none."""
        return next((order for order in itertools.permutations(way) if self._starts(order)), None)

    def has_way(self, sorts: Sequence[Sort], way: Way) -> bool:
        """Return whether all pods of some sorts find a place after others."""
        return next(self.ways(sorts, way), None) is not None

    def ways(self, sorts: Sequence[Sort], way: Way) -> Iterator[Way]:
        """Yield how pods of some sorts can be placed after others, in any order; those that end alike only once."""
        known: set[tuple[tuple[int, ...], tuple[tuple[str, str], ...]]] = set()

        def after(left: tuple[int, ...], way: Way) -> Iterator[Way]:
            key = left, tuple(sorted((pod["metadata"]["name"].rpartition("-")[0], node) for pod, node in way))
            if key in known:
                return
            known.add(key)
            if not any(left):
                yield way
            for at, count in enumerate(left):
                if count:
                    pod = sorts[at].make(sorts[at].pods - count, way)
                    rest = (*left[:at], count - 1, *left[at + 1 :])
                    for node in self._fits(way, pod):
                        if self._starts((*way, (pod, node))):
                            yield from after(rest, (*way, (pod, node)))

        yield from after(tuple(sort.pods for sort in sorts), way)

    def _fits(self, way: Way, pod: Json) -> list[str]:
        fits: list[str] = self._ask([*_pinned(way), {"pod": pod}])[-1]["fits"]
        return fits

    def _starts(self, way: Way) -> bool:
        answers = self._ask(_pinned(way)) if way else []
        return all(answer["node"] == node for (_, node), answer in zip(way, answers, strict=True))

    def _ask(self, gang: Sequence[Json]) -> list[Json]:
        claims = [_claim(one["pod"]) for one in gang if "volumes" in one["pod"]["spec"]]
        answer = self.oracle.ask({**self.world, "pvcs": claims, "gang": gang})
        if "error" in answer:
            raise AssertionError(answer["error"])
        found: list[Json] = answer["pods"]
        return found


def _pinned(way: Way) -> list[Json]:
    return [{"pod": plans.bound(pod, node), "node": node} for pod, node in way]


def _claim(pod: Json) -> Json:
    """Return the claim of a pod's ephemeral volume."""
    meta, (volume,) = pod["metadata"], pod["spec"]["volumes"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    named = {"name": f"{meta['name']}-{volume['name']}", "namespace": "default", "ownerReferences": [owner]}
    spec = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
    return {"metadata": named, "spec": spec, "status": {"phase": "Pending"}}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.filters.workloads")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    asked = parser.parse_args(arguments)
    flaws = admitted = 0
    for version in worlds.VERSIONS:
        with Oracle.of(version) as oracle:
            for seed in range(asked.first, asked.end):
                case = seeded(seed, version)
                said = simulated(case)
                found = flaw(case, said, oracle)
                admitted += bool(said.plan)
                if found is not None:
                    flaws += 1
                    print(f"{version} seed {seed}: {found}")
    print(f"{admitted} admitted, {flaws} flaws")
    return min(flaws, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
