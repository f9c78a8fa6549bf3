"""What makes pods: batch Jobs, and the pod templates of all that may be held as a whole.

Sizes of gangs come from here and from `owners`, never from a pod's label alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from admission.api.kubernetes import active_deadline, meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Json, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """One of a workload's pod templates, and what its controller makes of it at first.

    path: where it stands in the object. body: the template as JSON. pods: how many are made of it before any other
    has to run. name: of its pods, up to their number. labels: those that the controller adds. counted: those of them
    that tell parts of so many pods apart.
    """

    path: tuple[str | int, ...]
    body: Json
    pods: int
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)

    def parts_of(self, number: int) -> dict[str, str]:
        """Return the labels that say which part a pod is of, by its number."""
        return {key: str(number // pods) for key, pods in self.counted.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspendable:
    """A workload to be suspended or resumed as a whole. suspend: where in the object that is said.

    versions: of its API group, the best first: which of them the API server knows is not known.
    """

    meta: Meta
    group: str
    versions: tuple[str, ...]
    plural: str
    suspend: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch/v1 Job.

    active: how many of its pods have not ended. failed: how many of its indexes have failed for good
    (`backoffLimitPerIndex`): no pod is made for these any more.
    deadline: how long after its start Kubernetes ends all of its pods, whether these have begun or not; None: never.
    template: the pod template as JSON, to expand it into its pods offline, or while it is held as a whole; else empty.
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
    deadline: timedelta | None = None
    template: Json

    @property
    def together(self) -> int:
        """Return how many pods run at the same time while nothing has succeeded."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def left(self) -> int:
        """Return how many pods it still runs at a time: fewer than its parallelism towards its end.

        Without a number of completions none is made any more after the first success (`pkg/controller/job`, v1.37.1).
        """
        if self.completions is None:
            return min(self.parallelism, self.active) if self.succeeded else self.parallelism
        return min(self.parallelism, self.completions - self.succeeded - self.failed)


def decode_live(obj: Json) -> Job:
    """Read a Job of a cluster, where its pods are made by others: without the template, most of what it says.

    One that Muster holds as a whole, or has held, keeps it: what it says is planned before its pods exist.
    """
    found = decode(obj)
    return found if names.HELD in found.meta.annotations else replace(found, template={})


def decode(obj: Json) -> Job:
    """Read a Job."""
    reader = Reader(obj)
    spec, status = reader.child("spec"), reader.child("status")
    ended = ("Complete", "Failed")
    result = Job(
        meta=meta.decode(reader),
        parallelism=spec.integer("parallelism", 1),
        completions=spec.integer("completions") if "completions" in spec else None,
        suspended=spec.flag("suspend"),
        indexed=spec.text("completionMode") == "Indexed",
        finished=any(c.text("type") in ended and c.text("status") == "True" for c in status.children("conditions")),
        active=status.integer("active"),
        succeeded=status.integer("succeeded"),
        failed=_indexes(status.text("failedIndexes")),
        deadline=active_deadline.read(spec),
        template=spec.object("template"),
    )
    reader.finish("Job", result.meta.key)
    return result


_INTERVAL = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def _indexes(text: str) -> int:
    """Return how many indexes a Job's status lists, as `1,3-5`; what is no interval counts for none."""
    found = filter(None, map(_INTERVAL.fullmatch, text.split(",")))
    return sum(max(int(one[2] or one[1]) - int(one[1]) + 1, 0) for one in found)
