"""The queues of a case of quota as Kueue's objects, to be converted by `muster convert --from kueue` and played again.

A queue that is above others is a Cohort, the others are ClusterQueues. Namespaces of weights have LocalQueues.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]
Object = dict[str, Any]

VERSION = "kueue.x-k8s.io/v1beta2"
UNSAID = {"lending": "others borrow what waits for nobody in Kueue, whatever else", "preferences": "are flavors"}
"""What of a Queue nothing of Kueue says, and why."""


def of(record: Record) -> list[Object] | None:
    """Return the objects; None if these cannot say what the queues of the case say."""
    parents = {queue["parent"] for queue in record["queues"] if "parent" in queue}
    users = {gang["queue"] for gang in (*record["running"], *record["waiting"])}
    if parents & users or any(UNSAID.keys() & queue.keys() for queue in record["queues"]):
        return None
    if any(queue["name"] in parents and "stopPolicy" in queue for queue in record["queues"]):
        return None  # No Cohort is stopped.
    strategies = {queue.get("preemption", {}).get("byShares") for queue in record["queues"]}
    reclaiming = [queue for queue in record["queues"] if queue.get("preemption", {}).get("reclaim", "Never") != "Never"]
    shares = {queue["preemption"].get("byShares") for queue in reclaiming} if strategies - {None} else set()
    if len(shares) > 1:
        return None  # Kueue's strategies are those of the installation.
    return [_configuration(record, shares), *_queues(record, parents)]


def _configuration(record: Record, shares: set[Any]) -> Object:
    resources = sorted({quota["meter"] for queue in record["queues"] for quota in queue.get("quotas", ())})
    mappings = [{"name": name, "deviceClassNames": [name]} for name in resources]
    found: Object = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "resources": {"deviceClassMappings": mappings},
    }
    halves = {queue.get("fairSharing", {}).get("within", {}).get("halfLife") for queue in record["queues"]} - {None}
    if halves:
        found["admissionFairSharing"] = {"usageHalfLifeTime": halves.pop()}
    if any("weight" in queue.get("fairSharing", {}) for queue in record["queues"]):
        found["fairSharing"] = {"preemptionStrategies": sorted(shares)}
    return found


def _queues(record: Record, parents: set[str]) -> Iterator[Object]:
    for queue in record["queues"]:
        is_cohort = queue["name"] in parents
        spec: Object = {} if is_cohort else {"namespaceSelector": {}}
        if "parent" in queue:
            spec["parentName" if is_cohort else "cohortName"] = queue["parent"]
        for quota in queue.get("quotas", ()):
            limits = {name: quota[name] for name in ("borrowingLimit", "lendingLimit") if name in quota}
            resource = {"name": quota["meter"], "nominalQuota": quota["nominal"], **limits}
            flavor = {"name": "default", "resources": [resource]}
            spec.setdefault("resourceGroups", []).append({"coveredResources": [quota["meter"]], "flavors": [flavor]})
        spec |= {name: queue[name] for name in ("queueingStrategy", "stopPolicy") if name in queue}
        spec |= _preemption(queue)
        sharing = queue.get("fairSharing", {})
        if "weight" in sharing:
            spec["fairSharing"] = {"weight": sharing["weight"]}
        if "within" in sharing:
            spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        yield _object("Cohort" if is_cohort else "ClusterQueue", queue["name"], spec=spec)
        yield from _local_queues(record, queue["name"], sharing)
        for one in queue.get("priorityClasses", ()):
            yield _object("WorkloadPriorityClass", one["name"], value=one["value"])


def _local_queues(record: Record, name: str, sharing: Record) -> Iterator[Object]:
    """Yield a LocalQueue in each namespace that has gangs, with its weight, where weights count."""
    weights = {one["name"]: one["weight"] for one in sharing.get("within", {}).get("weights", ())}
    gangs = (*record["running"], *record["waiting"])
    for namespace in sorted({str(gang.get("namespace", "all")) for gang in gangs} | weights.keys()):
        own = {"fairSharing": {"weight": weights[namespace]}} if namespace in weights else {}
        found = _object("LocalQueue", name, spec={"clusterQueue": name, **own})
        found["metadata"]["namespace"] = namespace
        yield found


def _preemption(queue: Record) -> Object:
    given = queue.get("preemption", {})
    named = {"withinQueue": "withinClusterQueue", "reclaim": "reclaimWithinCohort"}
    found = {new: given[old] for old, new in named.items() if old in given}
    if "borrowWithinCohort" in given:
        found["borrowWithinCohort"] = given["borrowWithinCohort"]
    return {"preemption": found} if found else {}


def _object(kind: str, name: str, **body: Any) -> Object:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, **body}
