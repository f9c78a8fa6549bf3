"""Recognition: what it costs to find the gang of a pod, and what the webhook does with a pod that others make.

Goal (issue 8): at most 50 µs for a pod in the webhook, and no request to the API server: the webhook and
`workloads.gang_key` read a snapshot and have nothing else. Processor time, the least of several
rounds, since what disturbs only ever adds.
"""

import time
from collections.abc import Callable
from typing import Any

from rich.table import Table

from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.podpolicy import admission, pod_view, queue_selection
from admission.review.caches import ReviewCaches
from admission.workloads import gang_key
from admission.workloads.gang_cache import GangCache
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.webhook.cases import RULES, World
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod

REPEATED = 2_000
GOAL_US = 50.0
JOBS, PODS = 2_500, 4
"""How many JobSets of a Job with so many pods are counted."""


def measure(*, rounds: int) -> dict[str, Any]:
    """Return microseconds for a pod: of `identify` by kind, in a review by kind, and of grouping all gangs anew."""
    recognised = {name: _least(rounds, _identify(*case)) for name, case in _cases().items()}
    review = {name: _least(rounds, _judge(pod)) for name, pod in _reviewed_pods().items()}
    beside = {name: took - review["a pod alone"] for name, took in review.items() if name != "a pod alone"}
    return {
        "rounds": rounds,
        "identify_us": recognised,
        "door_us": review,
        "door_beside_alone_us": beside,
        "count_us": _counted(rounds),
        "goal_us": GOAL_US,
        "met": max(*recognised.values(), *beside.values()) <= GOAL_US,
    }


def table(result: dict[str, Any]) -> Table:
    """Return what was measured, for people."""
    shown = Table(title=f"Recognition, processor µs for a pod, least of {result['rounds']} rounds")
    for column in ("", "whose gang is it", "in the webhook", "beside a pod alone"):
        shown.add_column(column, justify="right")
    for name in dict.fromkeys((*result["identify_us"], *result["door_us"])):
        numbers = (result[of].get(name) for of in ("identify_us", "door_us", "door_beside_alone_us"))
        shown.add_row(name, *(f"{number:.1f}" if number is not None else "" for number in numbers))
    shown.add_row(f"all gangs of {JOBS * PODS:,} pods counted", f"{result['count_us']:.1f}")
    shown.add_row(f"at most {result['goal_us']:.0f}", "met" if result["met"] else "missed")
    return shown


def _least(rounds: int, work: Callable[[], object]) -> float:
    """Return microseconds of one of many calls, of the best round."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(REPEATED):
            work()
        found.append(time.process_time() - began)
    return min(found) / REPEATED * 1e6


def _identify(pod: Pod, snapshot: Snapshot) -> Callable[[], object]:
    return lambda: gang_key.identify(pod, snapshot)


def _cases() -> dict[str, tuple[Pod, Snapshot]]:
    herd = Herd()
    found: dict[str, Manifest] = {}
    found["a pod alone"] = herd.put(a_pod("alone"))
    spec = {"parallelism": 1, "template": TEMPLATE}
    job = herd.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec})
    (found["of a Job"],) = herd.all(standins.job_pods(job))
    found["of a JobSet"] = _of_jobset(herd, "js")
    lws = herd.put(
        an_object(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "lws",
            leaderWorkerTemplate={"size": 2, "workerTemplate": TEMPLATE},
        )
    )
    (leader,) = herd.all(standins.stateful_set_pods(herd.put(standins.leaders(lws))))
    (found["a worker of a LeaderWorkerSet"],) = herd.all(
        standins.stateful_set_pods(herd.put(standins.workers(lws, leader)))
    )
    cluster = {"headGroupSpec": {"template": TEMPLATE}}
    ray_job = an_object("ray.io/v1", "RayJob", "ray", shutdownAfterJobFinishes=True, rayClusterSpec=cluster)
    ray_job["metadata"]["annotations"] = {names.HELD: "started"}
    (found["of a RayJob that was held"],) = herd.all(
        standins.ray_pods(herd.put(standins.ray_cluster(herd.put(ray_job))))
    )
    policy = {"gang": {"minCount": 1}}
    herd.put(an_object("scheduling.k8s.io/v1beta1", "PodGroup", "pair", schedulingPolicy=policy))
    found["of a PodGroup"] = herd.put(a_pod("grouped", group="pair"))
    found["of a group of Kueue"] = herd.put(_of_kueue())
    groups = '[{"name": "a", "minMember": 4}]'
    told = {"yunikorn.apache.org/task-group-name": "a", "yunikorn.apache.org/task-groups": groups}
    found["of an application of YuniKorn"] = herd.put(a_pod("y", labels={"yunikorn.apache.org/app-id": "app"}, **told))
    snapshot = herd.snapshot
    return {name: (snapshot.pods[pod["metadata"]["uid"]], snapshot) for name, pod in found.items()}


def _of_jobset(herd: Herd, name: str, pods: int = 1) -> Manifest:
    entry = {"name": "a", "template": {"spec": {"parallelism": pods, "template": TEMPLATE}}}
    jobset = herd.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, replicatedJobs=[entry]))
    (job,) = herd.all(standins.jobset_jobs(jobset))
    return herd.all(standins.job_pods(job))[0]


def _of_kueue() -> Manifest:
    key = "kueue.x-k8s.io/pod-group-"
    return a_pod("kueue", labels={f"{key}name": "pair"}, **{f"{key}total-count": "2"})


def _reviewed_pods() -> dict[str, Manifest]:
    herd = Herd()
    return {
        "a pod alone": herd.put(a_pod("alone")),
        "of a JobSet": _of_jobset(herd, "js"),
        "of a group of Kueue": herd.put(_of_kueue()),
    }


def _judge(pod: Manifest) -> Callable[[], object]:
    snapshot = World().namespace("ml", team="a").queue("q").build()
    pod["metadata"]["labels"][names.QUEUE] = "q"
    defaults = ReviewCaches().defaults(snapshot)

    def work() -> None:
        arrival = pod_view.decode(pod, "ml")
        queue = queue_selection.select_queue(arrival, snapshot, defaults).queue
        admission.additions(arrival, queue, username="alice")
        admission.judge_creation(arrival, snapshot, rules=RULES, defaults=defaults)

    return work


def _counted(rounds: int) -> float:
    herd = Herd()
    for number in range(JOBS):
        _of_jobset(herd, f"js-{number}", PODS)
    snapshot = herd.snapshot
    found = []
    for _ in range(rounds):
        began = time.process_time()
        GangCache().groups(snapshot, {})
        found.append(time.process_time() - began)
    return min(found) / (JOBS * PODS) * 1e6
