"""What makes pods: batch Jobs for now. Sizes of gangs come from here, never from a pod's label alone."""

from dataclasses import dataclass, replace

from admission.api import meta
from admission.api.meta import Meta
from admission.api.reading import Json, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch/v1 Job. template: the pod template as JSON, to expand it into its pods offline; empty in a cluster."""

    meta: Meta
    parallelism: int = 1
    completions: int | None = None
    suspended: bool = False
    indexed: bool = False
    finished: bool = False
    succeeded: int = 0
    template: Json

    @property
    def together(self) -> int:
        """Return how many pods run at the same time while nothing has succeeded."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


def decode_live(obj: Json) -> Job:
    """Read a Job of a cluster, where its pods are made by others: without the template, most of what it says."""
    return replace(decode(obj), template={})


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
        succeeded=status.integer("succeeded"),
        template=spec.object("template"),
    )
    reader.finish("Job", result.meta.key)
    return result
