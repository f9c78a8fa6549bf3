"""Alibaba's GPU trace of 2023, known as openb, as a cluster and as jobs that `muster simulate --arrivals` plays.

The trace is `cluster-trace-gpu-v2023` of https://github.com/alibaba/clusterdata, whose page describes its columns: each
`openb_node_list_*.csv` has a node in a row, each `openb_pod_list_*.csv` a pod. Thousandths of a GPU are shares of a
capacity that several claims consume, models of GPUs an attribute that claims select: docs/tasks/traces.md has it all.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from admission.api.traces import LONGEST, Row
from admission.api.values import formats
from admission.errors import Problem

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"),
    *("creation_time", "deletion_time", "scheduled_time"),
)

DRIVER = "gpu.example.com"
DEVICE_CLASS = "gpu"
METER = "gpu-milli"
QUEUE = "openb"
SHARE = "gpu_milli"
"""The capacity of a GPU of which a pod may ask for a part."""
MODEL = "model"

WHOLE = 1_000
"""A GPU, in thousandths."""
MOST_GPUS = 128
"""Of a node, as many as a ResourceSlice has devices; and of a pod."""
MOST_AMOUNT = 10**12
"""Of thousandths of a CPU, and of MiB."""
MOST_MODELS = 32
"""That a pod names."""
PODS_OF_A_NODE = "1001"
"""How many pods a node takes in the manifests that come with the trace, which does not say it otherwise."""
NONE = frozenset({"", "nan"})
_MEND = "correct it, or take the row out"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """A node of the trace. cpu: in thousandths. memory: in MiB. model: of all its GPUs, empty without any."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePod:
    """A pod of the trace. share: of each of its GPUs, in thousandths. models: any of them, none for any.

    arrival: seconds since the trace begins. runtime: in seconds; None if it was never scheduled.
    """

    name: str
    cpu: int
    memory: int
    gpus: int
    share: int
    models: tuple[str, ...]
    arrival: int
    runtime: int | None


class Decoder:
    """Decodes rows whose bodies are cells by their heading. problems: those found so far, by line."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, Problem]] = []
        self._names: dict[str, int] = {}

    def nodes(self, rows: Iterable[Row]) -> Iterator[TraceNode]:
        """Yield the nodes of a node list, without rows that have a problem."""
        for row in rows:
            cells = _Cells(row, self.problems)
            gpus = cells.number("gpu", most=MOST_GPUS)
            node = TraceNode(
                name=self._name(cells, "sn"),
                cpu=cells.number("cpu_milli"),
                memory=cells.number("memory_mib"),
                gpus=gpus,
                model=next(iter(cells.models("model", most=1)), "") if gpus else "",
            )
            if gpus and cells.is_good and not node.model:
                cells.problem("model", "is required of a node with GPUs")
            if cells.is_good:
                yield node

    def pods(self, rows: Iterable[Row]) -> Iterator[TracePod]:
        """Yield the pods of a pod list, without rows that have a problem."""
        for row in rows:
            cells = _Cells(row, self.problems)
            gpus, arrival = cells.number("num_gpu", most=MOST_GPUS), cells.time("creation_time")
            pod = TracePod(
                name=self._name(cells, "name"),
                cpu=cells.number("cpu_milli"),
                memory=cells.number("memory_mib"),
                gpus=gpus,
                share=cells.number("gpu_milli", least=1, most=WHOLE) if gpus else 0,
                models=cells.models("gpu_spec", most=MOST_MODELS) if gpus else (),
                arrival=arrival,
                runtime=_runtime(cells, arrival),
            )
            if gpus > 1 and pod.share < WHOLE:
                cells.problem(SHARE, f"is {pod.share} of each of {gpus} GPUs; only pods of one GPU take a part of it")
            if cells.is_good:
                yield pod

    def _name(self, cells: "_Cells", column: str) -> str:
        name = cells.text(column)
        wrong = formats.subdomain(name) if name else "is required"
        if wrong is not None:
            cells.problem(column, wrong)
        elif name in self._names:
            cells.problem(column, f"{name!r} is the name in line {self._names[name]}, too")
        self._names.setdefault(name, cells.line)
        return name


class _Cells:
    """The cells of one row."""

    def __init__(self, row: Row, problems: list[tuple[int, Problem]]) -> None:
        self.line = row.line
        self._cells: Mapping[str, str] = row.body
        self._problems = problems
        self._count = len(problems)

    @property
    def is_good(self) -> bool:
        return len(self._problems) == self._count

    def problem(self, column: str, message: str) -> None:
        self._problems.append((self.line, Problem(column, message)))

    def text(self, column: str) -> str:
        return self._cells.get(column, "").strip()

    def number(self, column: str, *, least: int = 0, most: int = MOST_AMOUNT) -> int:
        """Return a whole number; the least one, with a problem noted, if the cell has none."""
        text = self.text(column)
        # Longer texts are larger than any bound, and slow to read.
        found = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else -1
        if not least <= found <= most:
            self.problem(column, f"{text[:40]!r} is no whole number from {least} to {most}")
            return least
        return found

    def time(self, column: str) -> int:
        """Return seconds since the trace begins."""
        return self.number(column, most=int(LONGEST.total_seconds()))

    def models(self, column: str, *, most: int) -> tuple[str, ...]:
        """Return the models of GPUs in a cell, as `V100M16|V100M32`."""
        text = self.text(column)
        found = () if text in NONE else tuple(dict.fromkeys(text.split("|")))
        wrong = next((name for name in found if not name or formats.value(name) is not None), None)
        if wrong is not None or len(found) > most:
            what = "the name of a model" if most == 1 else f"at most {most} names of models, as V100M16|V100M32"
            self.problem(column, f"{text[:80]!r} is not {what}")
            return ()
        return found


def _runtime(cells: _Cells, arrival: int) -> int | None:
    """Return from when it was scheduled to when it was deleted, at least a second; None if it never was scheduled."""
    if not cells.text("scheduled_time"):
        return None
    scheduled, deleted = cells.time("scheduled_time"), cells.time("deletion_time")
    if not cells.is_good:
        return None
    if scheduled < arrival:
        cells.problem("scheduled_time", f"{scheduled} is before creation_time, {arrival}; {_MEND}")
    if deleted < scheduled:
        cells.problem("deletion_time", f"{deleted} is before scheduled_time, {scheduled}; {_MEND}")
    return max(deleted - scheduled, 1)


def cluster(nodes: Iterable[TraceNode]) -> Iterator[Json]:
    """Yield a DeviceClass, a Meter of thousandths of GPUs, each Node with its ResourceSlice, and a Queue for all."""
    yield _object("resource.k8s.io/v1", "DeviceClass", DEVICE_CLASS, _selectors(f"device.driver == '{DRIVER}'"))
    sources = [{"deviceClasses": [DEVICE_CLASS], "capacity": {"name": SHARE}}]
    yield _object("muster.dev/v1alpha1", "Meter", METER, {"sources": sources})
    gpus = 0
    for node in nodes:
        gpus += node.gpus
        allocatable = {"cpu": f"{node.cpu}m", "memory": f"{node.memory}Mi", "pods": PODS_OF_A_NODE}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name},
            "status": {"allocatable": allocatable},
        }
        if node.gpus:
            yield _object("resource.k8s.io/v1", "ResourceSlice", node.name, _slice(node))
    quotas = [{"meter": METER, "nominal": gpus * WHOLE}]
    yield _object("muster.dev/v1alpha1", "Queue", QUEUE, {"namespaceSelector": {}, "quotas": quotas})


def job(pod: TracePod) -> Json | None:
    """Return a pod as a row of a trace of jobs; None if how long it would have run is not known."""
    if pod.runtime is None:
        return None
    return {
        "name": pod.name,
        "queue": QUEUE,
        "arrival": pod.arrival,
        "runtime": pod.runtime,
        "requests": {"cpu": f"{pod.cpu}m", "memory": f"{pod.memory}Mi"},
        **({"claims": [{"devices": {"requests": [request(pod)]}}]} if pod.gpus else {}),
    }


def request(pod: TracePod) -> Json:
    """Return the request of the claim of a pod with GPUs."""
    attribute = f"device.attributes['{DRIVER}'].{MODEL}"
    names = ", ".join(f"'{name}'" for name in pod.models)
    exactly = {
        "deviceClassName": DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": pod.gpus,
        "capacity": {"requests": {SHARE: str(pod.share)}},
    }
    return {"name": "gpu", "exactly": exactly | (_selectors(f"{attribute} in [{names}]") if names else {})}


def _slice(node: TraceNode) -> Json:
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {MODEL: {"string": node.model}},
            "allowMultipleAllocations": True,
            "capacity": {SHARE: {"value": str(WHOLE)}},
        }
        for at in range(node.gpus)
    ]
    pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    return {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": devices}


def _selectors(expression: str) -> Json:
    return {"selectors": [{"cel": {"expression": expression}}]}


def _object(version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
