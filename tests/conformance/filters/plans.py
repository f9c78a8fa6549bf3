"""Plans carried out by kube-scheduler's own filters: what Muster lets in starts, and what could start has a plan.

    python -m tests.conformance.filters.plans 0 500      # the worlds of these seeds, on every release

A plan is good if each pod, bound to its node as Muster binds it and in the plan's order, passes all filters there. A
gang without a plan is tried in some ways: its pods one by one, each on any node that takes it. A gang of which Muster
says that something is not simulated may have any plan or none. Of some worlds each group of pods is a gang, planned
after the one before. Prints each seed with a flaw, and closes with what was planned and what was not. Needs Go once, to
build Kubernetes.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from admission.api.kubernetes import nodes
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.dra import compatibility, gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.kube.writers import pod_patch
from admission.status import not_simulated
from tests.conformance import device_judge, filter_judge
from tests.conformance.filters import worlds
from tests.conformance.filters.draws import Draw
from tests.controlplane.filters import Oracle

Json = dict[str, Any]

STEPS = 50_000
TRIES = 4
"""The ways in which a gang without a plan is tried."""


Place = tuple[str, str]
"""A pod and its node."""


def planned(world: Json) -> Plan | NoPlan:
    """Return Muster's plan for a world's gang, or why there is none."""
    snapshot = _snapshot(world)
    return _planned([filter_judge.pod_of(one["pod"]) for one in world["gang"]], snapshot, _cluster(world, snapshot))


def _snapshot(world: Json) -> Snapshot:
    snapshot = Snapshot(
        nodes={node.name: node for node in map(nodes.decode, world["nodes"])},
        namespaces={one.meta.name: one for one in map(nodes.decode_namespace, world.get("namespaces", ()))},
        pods={pod.meta.uid: pod for pod in map(filter_judge.pod_of, world["pods"])},
        storage=filter_judge.storage_of(world),
    )
    return device_judge.with_devices(snapshot, world)


def _cluster(world: Json, snapshot: Snapshot) -> ClusterState:
    return cluster_state.build(snapshot, (), profile=compatibility.of_version(world["version"]))


def _planned(pods: Sequence[Pod], snapshot: Snapshot, cluster: ClusterState) -> Plan | NoPlan:
    demands = [device_judge.demand_of(pod, snapshot) or PodDemand(pod=pod) for pod in pods]
    return gang_planner.plan(demands, cluster, selectors=Selectors(cluster.profile.cel), steps=STEPS)


def flaw_in_turn(world: Json, oracle: Oracle, draw: Draw) -> tuple[list[Plan | NoPlan], str | None]:
    """Plan one gang for each group of pods, one after the other; return the plans, and what is wrong with one."""
    snapshot = _snapshot(world)
    cluster, before, answers = _cluster(world, snapshot), list[Place](), list[Plan | NoPlan]()
    groups: dict[str, list[Json]] = {}
    for one in world["gang"]:
        groups.setdefault(one["pod"]["metadata"]["name"].partition("-")[0], []).append(one)
    for name, group in groups.items():
        pods = [filter_judge.pod_of(one["pod"]) for one in group]
        answers.append(answer := _planned(pods, snapshot, cluster))
        found = flaw({**world, "gang": group}, answer, oracle, draw, before=(world["gang"], before))
        if found is not None or not isinstance(answer, Plan) or not_simulated.of_pods(pods, cluster.placed.storage):
            return answers, found
        before = [*before, *_places(answer)]
        cluster = cluster_state.granted(cluster, answer, {pod.meta.uid: pod for pod in pods}, name)
    return answers, None


def _places(plan: Plan) -> list[Place]:
    return [(each.pod.partition("/")[2], each.node) for each in plan.pods]


def flaw(
    world: Json,
    answer: Plan | NoPlan,
    oracle: Oracle,
    draw: Draw,
    *,
    before: tuple[Sequence[Json], Sequence[Place]] = ((), ()),
) -> str | None:
    """Return what is wrong with a plan, or which one was not found; None where nothing is.

    before: pods of other gangs, and where they have been planned before.
    """
    gang = world["gang"]
    pods = [filter_judge.pod_of(one["pod"]) for one in gang]
    if not_simulated.of_pods(pods, filter_judge.storage_of(world)) or _share_beside_volumes(pods):
        return None
    known = {**world, "gang": [*before[0], *gang]}
    if isinstance(answer, Plan):
        return _refused(known, [*before[1], *_places(answer)], oracle)
    if answer.kind is Kind.STEPS_ENDED:
        return None
    for _ in range(TRIES):
        way = _way(known, [one["pod"] for one in gang], before[1], oracle, draw)
        if way is not None and _refused(known, [*before[1], *way], oracle) is None:
            return f"no plan ({answer.kind}: {answer.message}), but {way} starts"
    return None


def _share_beside_volumes(pods: Sequence[Pod]) -> bool:
    """Return whether a pod with volumes, in-line disks among them, shares a claim with any other pod.

    The program carries out no PreBind of a pod with volumes, so that the allocation of its claims stays pending, and
    whoever shares one of them is refused whatever the plan.
    """
    users = Counter(claim.claim for pod in pods for claim in pod.claims)
    return any(users[claim.claim] > 1 for pod in pods if pod.rules.volumes for claim in pod.claims)


def _way(world: Json, pods: Sequence[Json], before: Sequence[Place], oracle: Oracle, draw: Draw) -> list[Place] | None:
    """Return where pods go one by one, in some order, each to any node that takes it; None if one has no node.

    before: where others have gone.
    """
    manifests = {one["pod"]["metadata"]["name"]: one["pod"] for one in world["gang"]}
    way: list[Place] = []
    gang: list[Json] = [{"pod": manifests[name], "node": node} for name, node in before]
    for pod in draw.shuffled(pods):
        answer = oracle.ask({**world, "gang": [*gang, {"pod": pod}]})
        fits = answer["pods"][-1]["fits"]
        if not fits:
            return None
        way.append((pod["metadata"]["name"], draw.pick(fits)))
        gang.append({"pod": pod, "node": way[-1][1]})
    return way


def _refused(world: Json, placement: list[Place], oracle: Oracle) -> str | None:
    """Return which pod is refused if pods are bound to these nodes in this order; None if all start."""
    manifests = {one["pod"]["metadata"]["name"]: one["pod"] for one in world["gang"]}
    gang = [{"pod": bound(manifests[name], node), "node": node} for name, node in placement]
    asked = oracle.ask({**world, "gang": gang})
    if "error" in asked:
        return str(asked["error"])
    for (name, node), pod in zip(placement, asked["pods"], strict=True):
        if pod["node"] != node:
            return f"{placement}: pod {name} on {node}: {pod['refused'].get(node, pod.get('error'))}"
    return None


def bound(manifest: Json, node: str) -> Json:
    """Return a pod as it is when Muster has opened its gate."""
    pod = deepcopy(manifest)
    patch = pod_patch.opened(filter_judge.pod_of(manifest), NodeName(node))
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity |= patch["spec"]["affinity"]["nodeAffinity"]
    return pod


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.filters.plans")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--family", choices=(worlds.PLANNED, worlds.COMPETING), default=worlds.PLANNED)
    parser.add_argument("--in-turn", action="store_true", help="each group of pods is a gang")
    asked = parser.parse_args(arguments)
    counts = Counter[str]()
    for version in worlds.VERSIONS:
        with Oracle.of(version) as oracle:
            for seed in range(asked.first, asked.end):
                world = worlds.seeded(seed, family=asked.family, version=version)
                if asked.in_turn:
                    answers, found = flaw_in_turn(world, oracle, Draw(seed))
                else:
                    answers = [planned(world)]
                    found = flaw(world, answers[0], oracle, Draw(seed))
                counts.update("plan" if isinstance(answer, Plan) else str(answer.kind) for answer in answers)
                if found is not None:
                    counts["flaw"] += 1
                    print(f"{version} seed {seed}: {found}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return min(counts["flaw"], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
