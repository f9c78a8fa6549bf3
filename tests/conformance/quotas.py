"""Cases of quota: which gangs are admitted and which are evicted, decided as `muster simulate` decides.

The cases follow the rules of Kueue, by its documentation and tests; `rule` says the one that a case is about, `options`
what of Kueue's objects it shows. Devices are plenty, so that quota alone decides. Gangs that run have the longer wait,
unless they are `late`, and the first of them is the oldest; those that wait are in the order of their wait. Each case
is decided twice: where pods have claims, and where they request the same amounts of nodes instead, CPU among them.

Where gangs say of how many `hours` they run, starts are reserved. They ran for minutes by now.

A case with `kinds` has meters that count the kinds of one device class, each on a node of its own. A charge of `any`
leaves the kind open; `on` says which kind the gangs that are admitted get.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from admission.api.values.names import PRIORITY_CLASS, QUEUE, RUNTIME
from admission.simulation import expand, offline
from admission.simulation.offline import Outcome, Verdict

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "data" / "quota.jsonl"
FIELDS = Path(__file__).parent / "data" / "kueue_fields.txt"
"""The fields of the specs of Kueue's objects, `Kind.path`, of v1beta1 and v1beta2 as of August 2026."""
CALLED = {
    "cohort": "cohortName",
    "admissionChecks": "admissionChecksStrategy",
    "priorityClassName": "priorityClassRef",
    "priorityClassSource": "priorityClassRef",
}
"""What v1beta1 calls otherwise than v1beta2, after which docs/tasks/kueue.md is named."""
VALUES = {
    "ClusterQueue.queueingStrategy": ("StrictFIFO", "BestEffortFIFO"),
    "ClusterQueue.stopPolicy": ("None", "Hold", "HoldAndDrain"),
    "ClusterQueue.flavorFungibility.whenCanBorrow": ("MayStopSearch", "TryNextFlavor"),
    "ClusterQueue.flavorFungibility.whenCanPreempt": ("MayStopSearch", "TryNextFlavor"),
    "ClusterQueue.flavorFungibility.preference": ("BorrowingOverPreemption", "PreemptionOverBorrowing"),
    "ClusterQueue.reclaimWithinCohort": ("Never", "LowerPriority", "Any"),
    "ClusterQueue.borrowWithinCohort": ("Never", "LowerPriority"),
    "ClusterQueue.withinClusterQueue": ("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "ClusterQueue.admissionScope": ("NoAdmissionFairSharing", "UsageBasedAdmissionFairSharing"),
    "ClusterQueue.concurrentAdmissionPolicy": ("TryPreferredFlavors", "RetainFirstAdmission"),
    "LocalQueue.stopPolicy": ("None", "Hold", "HoldAndDrain"),
    "Workload.priorityClassRef": ("WorkloadPriorityClass", "PriorityClass"),
}
"""The values between which fields choose, by the rows that tell of them, of v1beta2 as of August 2026."""
NODE = "one"
ANY = "any"
START = datetime(2026, 1, 1, tzinfo=UTC)
EVICTED = {"Preempted", "Reclaimed", "QueueDrained"}

Record = Mapping[str, Any]
Object = dict[str, Any]


def records() -> list[Record]:
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def documented_options() -> Iterator[tuple[str, str]]:
    """Yield the options of Kueue's objects that docs/tasks/kueue.md names, and what it says of them."""
    kind = ""
    for line in (ROOT / "docs" / "tasks" / "kueue.md").read_text().partition("## Option by option")[2].splitlines():
        if line.startswith("### "):
            kind = line.removeprefix("### ")
        elif line.startswith("| `"):
            _, option, verdict = line.split("|", 2)
            yield f"{kind}.{option.strip().strip('`')}", verdict.strip()


def untold_fields() -> list[str]:
    """Return the fields of Kueue's objects of which docs/tasks/kueue.md has no row, nor one of an object around them.

    A row of `option=value` is one of the option. What is beside the name of a flavor needs a row of its own.
    """
    told = {row.partition("=")[0] for row, _ in documented_options()}
    return [field for field in FIELDS.read_text().split() if not _names_of(field) & told]


def untold_values() -> list[str]:
    """Return the values of Kueue's options, as `Kind.path=value`, without a row of their own or one of the option."""
    rows = {row for row, _ in documented_options()}
    values = ((field, value) for field, some in VALUES.items() for value in some)
    return [f"{field}={value}" for field, value in values if not {f"{field}={value}", field} & rows]


def _names_of(field: str) -> set[str]:
    """Return the names of rows that would tell of a field: of its last parts, or those of an object around it."""
    kind, *path = field.replace("resources.name", "coveredResources").split(".")
    path = [CALLED.get(part, part) if len(path) == 1 else part for part in path]
    ends = [end for end in range(1, len(path) + 1) if path[end - 1] != "flavors" or path[end:] in ([], ["name"])]
    return {f"{kind}.{'.'.join(path[start:end])}" for end in ends for start in range(end)}


def difference(record: Record, *, has_claims: bool = True, queues: Iterable[Record] = ()) -> str | None:
    """Return how the simulation differs from what is expected; None where they agree.

    has_claims: whether pods have claims for what is charged; if not, they request it of nodes. queues: the Queues and
    Meters in the place of those of the case.
    """
    outcome = _simulated(record, has_claims=has_claims, queues=queues)
    ran = {gang["name"] for gang in record["running"]}
    # A lone pod's gang is of its name and a hash.
    names = [(gang.name.partition("-")[0], gang) for gang in outcome.gangs]
    admitted = [name for name, gang in names if gang.verdict is Verdict.ADMITTED and name not in ran]
    evicted = sorted(name for name, gang in names if gang.reason in EVICTED)
    found: tuple[object, ...] = (admitted, evicted)
    expected: tuple[object, ...] = (record["admitted"], record["evicted"])
    if "on" in record:
        found += ({name: "+".join(gang.charges) for name, gang in names if name in admitted},)
        expected += (record["on"],)
    return None if found == expected else f"expected {expected}\n       got {found}"


def _simulated(record: Record, *, has_claims: bool, queues: Iterable[Record]) -> Outcome:
    replaced = {(one["kind"], one["metadata"]["name"]): dict(one) for one in queues}
    made = [replaced.get((one["kind"], one["metadata"]["name"]), one) for one in (*_cluster(record), *_gangs(record))]
    expanded = expand.expand(made if has_claims else [*_requested_of_nodes(made, record)])
    if expanded.problems:
        raise ValueError(f"{record['id']}: {expanded.problems}")
    return asyncio.run(offline.simulate(expanded))


def _meters(record: Record) -> list[str]:
    charged = {meter for gang in (*record["running"], *record["waiting"]) for meter in gang["charge"]}
    return sorted({*charged, *record.get("kinds", ())} - {ANY})


def _cluster(record: Record) -> Iterator[Object]:
    for namespace in sorted({_namespace(gang) for gang in (*record["running"], *record["waiting"])}):
        yield _object("v1", "Namespace", namespace)
    for node in sorted({NODE, *record.get("kinds", ())}):
        yield _object("v1", "Node", node)
    if "kinds" in record:
        yield _object("resource.k8s.io/v1", "DeviceClass", ANY)
    named = {quota["meter"] for queue in record["queues"] for quota in queue.get("quotas", ())}
    for meter in sorted({*named, *_meters(record)}):
        node = _node(meter, record)
        driver = f"{meter}.example.com"
        yield _object("resource.k8s.io/v1", "DeviceClass", meter, {"selectors": [_cel(f"device.driver == '{driver}'")]})
        yield _object("muster.dev/v1alpha1", "Meter", meter, {"sources": _sources(meter, record)})
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"{meter}-{number}"} for number in range(_most(record, meter))]
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        yield _object("resource.k8s.io/v1", "ResourceSlice", meter, spec)
    for queue in record["queues"]:
        own: Object = {key: value for key, value in queue.items() if key != "name"}
        if "preferences" in own:
            own["preferences"] = {**own["preferences"], "kinds": [*map(_kind, own["preferences"]["kinds"])]}
        yield _object("muster.dev/v1alpha1", "Queue", queue["name"], {"namespaceSelector": {}, **own})


def _node(meter: str, record: Record) -> str:
    return meter if meter in record.get("kinds", ()) else NODE


def _sources(meter: str, record: Record) -> list[Object]:
    if meter not in record.get("kinds", ()):
        return [{"deviceClasses": [meter], "count": {}}]
    selector = f"device.driver == '{meter}.example.com'"
    return [{"deviceClasses": [ANY, meter], "selector": selector, "count": {}}]


def _kind(meter: str) -> Object:
    return {"name": meter, "deviceClasses": [ANY, meter], "selector": f"device.driver == '{meter}.example.com'"}


def _namespace(gang: Record) -> str:
    return str(gang.get("namespace", "all"))


def _most(record: Record, meter: str) -> int:
    """Return how many devices all gangs need at once."""
    gangs = (*record["running"], *record["waiting"])
    return sum(gang["charge"].get(meter, 0) + gang["charge"].get(ANY, 0) for gang in gangs)


def _gangs(record: Record) -> Iterator[Object]:
    taken = dict.fromkeys(_meters(record), 0)
    for number, gang in enumerate((*record["running"], *record["waiting"])):
        runs = number < len(record["running"])
        created = START + timedelta(minutes=number) + (timedelta(days=1) if gang.get("late") else timedelta())
        claims = []
        for meter, amount in gang["charge"].items():
            name = f"{gang['name']}-{meter}"
            request = {"name": "d", "exactly": {"deviceClassName": meter, "count": amount}}
            claim = _object(
                "resource.k8s.io/v1",
                "ResourceClaim",
                name,
                {"devices": {"requests": [request]}},
                namespace=_namespace(gang),
            )
            claim["metadata"]["uid"] = name
            if runs:
                numbers = range(taken[meter], taken[meter] + amount)
                claim["status"] = _allocated(meter, numbers, gang["name"], _node(meter, record))
                taken[meter] += amount
            claims.append({"name": meter, "resourceClaimName": name})
            yield claim
        node = _node(next(iter(gang["charge"])), record)
        yield _pod(gang, claims, created, node if runs else None)


def _pod(gang: Record, claims: list[Object], created: datetime, node: str | None) -> Object:
    spec: Object = {
        "containers": [{"name": "main"}],
        "resourceClaims": claims,
        "restartPolicy": "Never",
        "priority": gang.get("priority", 0),
    }
    pod = _object("v1", "Pod", gang["name"], spec, namespace=_namespace(gang))
    pod["metadata"] |= {
        "uid": gang["name"],
        "creationTimestamp": created.isoformat(),
        "labels": {QUEUE: gang["queue"], **({PRIORITY_CLASS: gang["class"]} if "class" in gang else {})},
        "annotations": {RUNTIME: f"{gang['hours']}h"} if "hours" in gang else {},
    }
    if node is not None:
        spec["nodeName"] = node
        pod["status"] = {"phase": "Running", "startTime": created.isoformat()}
    return pod


def _requested_of_nodes(objects: Iterable[Object], record: Record) -> Iterator[Object]:
    """Yield the same objects with pods that request resources of nodes in place of claims, and meters of these."""
    charges = {gang["name"]: gang["charge"] for gang in (*record["running"], *record["waiting"])}
    for one in objects:
        name = one["metadata"]["name"]
        if one["kind"] == "Meter":
            yield {**one, "spec": {"resources": [{"name": _resource(name)}]}}
        elif one["kind"] == "Pod":
            requests = {_resource(meter): str(amount) for meter, amount in charges[name].items()}
            containers = [{"name": "main", "resources": {"requests": requests}}]
            yield {**one, "spec": {**one["spec"], "containers": containers, "resourceClaims": []}}
        elif one["kind"] not in {"ResourceClaim", "ResourceSlice", "DeviceClass"}:
            yield one


def _resource(meter: str) -> str:
    return "cpu" if meter == "gpu" else f"example.com/{meter}"


def _allocated(meter: str, numbers: range, pod: str, node: str) -> Object:
    results = [
        {"request": "d", "driver": f"{meter}.example.com", "pool": node, "device": f"{meter}-{number}"}
        for number in numbers
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    return {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]}


def _cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def _object(version: str, kind: str, name: str, spec: Object | None = None, **metadata: str) -> Object:
    found: Object = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}
    return found if spec is None else {**found, "spec": spec}
