"""The paths of a pod's containers in its JSON, in the order in which they start."""

from typing import NamedTuple

from admission.api.kubernetes.pods import Stage
from admission.claimpolicy.draft import Draft, JsonPath


class ContainerPath(NamedTuple):
    """One container."""

    name: str
    stage: Stage
    path: JsonPath


def container_paths(draft: Draft) -> tuple[ContainerPath, ...]:
    """Return the init containers, including sidecars, then the others. Entries that are not objects are left out."""
    return (*_listed(draft, "initContainers"), *_listed(draft, "containers"))


def _listed(draft: Draft, field: str) -> list[ContainerPath]:
    entries = draft.get("spec", field)
    return [
        ContainerPath(str(entry.get("name", "")), _stage(field, entry.get("restartPolicy")), ("spec", field, index))
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]


def _stage(field: str, restarts: object) -> Stage:
    if field == "containers":
        return Stage.MAIN
    return Stage.SIDECAR if restarts == "Always" else Stage.INIT
