"""Batch Jobs, and the pod templates of workloads that can be held as a whole.

Sizes of gangs come from here and from `owners`, never from a pod's label alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count, islice

from admission.api.kubernetes import active_deadline, meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Json, Reader

INDEX = "batch.kubernetes.io/job-completion-index"
"""The label, and annotation, with the number of a pod in its Indexed Job."""

INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""The annotation of a pod with how often its index has failed, of a Job that counts failures by index."""

MAX_PARALLELISM = 100_000
"""Pods of an Indexed Job at a time (`maxParallelismForIndexedJob` of `pkg/apis/batch/validation`)."""


DEFAULT_BACKOFF_LIMIT = 6

EVICTED = "DisruptionTarget"
"""The condition of a pod that was evicted."""


def pod_labels(name: str, uid: str) -> dict[str, str]:
    """Return the labels that a Job's controller gives to its pods (`pkg/controller/job`, v1.37.1)."""
    return {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "job-name": name,
        "controller-uid": uid,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A pod template of a workload, and the pods that the controller first makes from it.

    path: of the template in the object. body: the template as JSON. pods: the number of pods that the controller makes
    from it without waiting for others to run. name: of its pods, without their number. start: the number in the name of
    the first one. indexes: of the pods in their Job, where these are not 0, 1, 2, ... labels: added by the controller.
    part_labels: labels that number the parts of the template's pods, each with the pods per part. first_parts: the
    number of the first part, where it is not 0. index_labels: labels that number the pods of each part, each with the
    pods per part. exclusive: the label of nodes in whose domains each part is alone, among all parts that are (JobSet's
    `exclusive-topology`). has_own_nodes: whether nodes were labelled for each part beforehand, instead (JobSet's
    `node-selector`).
    """

    path: tuple[str | int, ...]
    body: Json
    pods: int
    name: str
    start: int = 0
    indexes: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    part_labels: Mapping[str, int] = field(default_factory=dict)
    first_parts: Mapping[str, int] = field(default_factory=dict)
    index_labels: Mapping[str, int] = field(default_factory=dict)
    exclusive: str = ""
    has_own_nodes: bool = False

    @property
    def numbers_pods(self) -> bool:
        """Whether labels tell the template's pods apart."""
        return bool(self.part_labels or self.index_labels)

    def pod_name(self, number: int) -> str:
        """Return the name of a pod, but for a suffix that is drawn by lot."""
        return f"{self.name}-{self._index(number) + self.start}"

    def parts_of(self, number: int) -> dict[str, str]:
        """Return the labels that number a pod and its parts, by the pod's number."""
        parts = {key: str(number // pods + self.first_parts.get(key, 0)) for key, pods in self.part_labels.items()}
        return parts | {key: str(self._index(number) % pods) for key, pods in self.index_labels.items()}

    def _index(self, number: int) -> int:
        return self.indexes[number] if number < len(self.indexes) else number


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspendable:
    """A workload to suspend or resume as a whole. suspend: the path of the field that suspends it.

    versions: of its API group, the best first, since the version that the API server serves is not known.
    """

    meta: Meta
    group: str
    versions: tuple[str, ...]
    plural: str
    suspend: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch/v1 Job.

    active: the number of its pods that have not ended. failed: the number of its indexes that have failed for good
    (`backoffLimitPerIndex`) and get no more pods. ended: the indexes that have failed or succeeded.
    deadline: the time after its start when Kubernetes ends all of its pods, started or not; None: never.
    lost: the number of its pods that have failed, deleted ones included. most_lost: after more it fails, or, where
    `is_by_index`, each index of it; None: evicted pods do not count (`podFailurePolicy`).
    template: the pod template as JSON, to derive its pods offline, or while it is held as a whole; else empty.
    """

    meta: Meta
    parallelism: int = 1
    completions: int | None = None
    suspended: bool = False
    indexed: bool = False
    finished: bool = False
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    ended: tuple[range, ...] = ()
    deadline: timedelta | None = None
    lost: int = 0
    most_lost: int | None = DEFAULT_BACKOFF_LIMIT
    is_by_index: bool = False
    template: Json

    def spare_failures(self, annotations: Mapping[str, str]) -> int | None:
        """Return how many pods may be evicted without that it fails, even if one more fails; None if any number may.

        annotations: of a pod; one that replaces others of its index says how often these have failed.
        """
        if self.most_lost is None:
            return None
        text = annotations.get(INDEX_FAILURES, "")
        lost = (int(text) if text.isdecimal() else 0) if self.is_by_index else self.lost
        return max(self.most_lost - lost - 1, 0)

    @property
    def initial_pods(self) -> int:
        """Return how many pods run at the same time before any has succeeded."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def remaining_pods(self) -> int:
        """Return how many pods it still runs at a time: fewer than its parallelism towards its end.

        Without `completions`, no pod is created after the first success (`pkg/controller/job`, v1.37.1). None either
        where more have ended than are wanted, as in an elastic Job that was scaled down.
        """
        if self.completions is None:
            return min(self.parallelism, self.active) if self.succeeded else self.parallelism
        return max(min(self.parallelism, self.completions - self.succeeded - self.failed), 0)

    @property
    def next_indexes(self) -> tuple[int, ...]:
        """Return the indexes of the pods that it creates next while none is active; empty where that is 0, 1, 2, ...

        The first ones that have not ended (`pkg/controller/job/indexed_job_utils.go`, firstPendingIndexes, v1.37.1).
        """
        if not self.ended:
            return ()
        return tuple(islice(_outside(self.ended), min(self.remaining_pods, MAX_PARALLELISM)))


def decode_live(obj: Json) -> Job:
    """Decode a Job of a live cluster, without its template, which is most of the object and not needed there.

    A Job that Muster holds as a whole, or has held, keeps its template: it is planned before its pods exist.
    """
    job = decode(obj)
    return job if names.HELD in job.meta.annotations else replace(job, template={})


def decode(obj: Json) -> Job:
    """Decode a Job."""
    reader = Reader(obj)
    spec, status = reader.child("spec"), reader.child("status")
    end_conditions, failed = ("Complete", "Failed"), _indexes(status.text("failedIndexes"))
    result = Job(
        meta=meta.decode(reader),
        parallelism=spec.integer("parallelism", 1),
        completions=spec.integer("completions") if "completions" in spec else None,
        suspended=spec.flag("suspend"),
        indexed=spec.text("completionMode") == "Indexed",
        finished=any(
            condition.text("type") in end_conditions and condition.text("status") == "True"
            for condition in status.children("conditions")
        ),
        active=status.integer("active"),
        succeeded=status.integer("succeeded"),
        failed=sum(map(len, failed)),
        ended=(*failed, *_indexes(status.text("completedIndexes"))),
        deadline=active_deadline.read(spec),
        lost=status.integer("failed"),
        most_lost=_most_lost(spec),
        is_by_index="backoffLimitPerIndex" in spec,
        template=spec.object("template"),
    )
    reader.finish("Job", result.meta.key)
    return result


def _most_lost(spec: Reader) -> int | None:
    """Return how many pods may fail; None if evicted ones do not count, by the first rule that is about these."""
    for rule in spec.child("podFailurePolicy").children("rules"):
        kinds = {one.text("type") for one in rule.children("onPodConditions") if one.text("status", "True") == "True"}
        if EVICTED in kinds:
            return None if rule.text("action") == "Ignore" else 0
    if "backoffLimitPerIndex" in spec:
        return spec.integer("backoffLimitPerIndex")
    return spec.integer("backoffLimit", DEFAULT_BACKOFF_LIMIT)


_INTERVAL = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def _indexes(text: str) -> tuple[range, ...]:
    """Return the indexes that a Job's status lists, such as `1,3-5`; other text counts as none."""
    intervals = filter(None, map(_INTERVAL.fullmatch, text.split(",")))
    return tuple(range(int(one[1]), max(int(one[2] or one[1]), int(one[1]) - 1) + 1) for one in intervals)


def _outside(intervals: Iterable[range]) -> Iterator[int]:
    """Yield the natural numbers that are in no interval, without end."""
    at = 0
    for one in sorted(intervals, key=lambda one: one.start):
        yield from range(at, one.start)
        at = max(at, one.stop)
    yield from count(at)
