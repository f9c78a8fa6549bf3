"""The pod templates of waves that run at the same time, written so that their pods can be looked at as one gang.

Each wave is a gang of its own, and pods of one gang may not differ in everything in which those of two gangs may.
"""

from collections.abc import Iterable
from typing import Any

from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.workloads.kinds import foreign_queues

QUEUE_KEYS = frozenset({names.QUEUE, *(key.key for key in foreign_queues.QUEUE_KEYS)})
"""Keys that name the queue; all pods of a gang have the same."""

SIZE_KEYS = (names.GANG, names.GANG_SIZE, names.GANG_MIN)
"""Keys by which pods declare a gang, or its size, themselves."""


def are_of_one_gang(templates: Iterable[Json]) -> bool:
    """Return whether pods of some templates may form one gang: in one queue, with no gang or size declared."""
    found = list(map(_texts, templates))
    queues = [{key: text for key, text in texts.items() if key in QUEUE_KEYS} for texts in found]
    return not any(key in texts for texts in found for key in SIZE_KEYS) and all(one == queues[0] for one in queues)


def needs_others(template: Json) -> bool:
    """Return whether pods of a template have to be where other pods are."""
    affinity = Reader(template).child("spec").child("affinity").child("podAffinity")
    return any(True for _ in affinity.children("requiredDuringSchedulingIgnoredDuringExecution"))


def as_part(template: Json, part: str) -> dict[str, Any]:
    """Return a template whose pods ask for a domain for their part, if they ask for one for their gang.

    They are free to go anywhere instead if they have a topology of subgroups as well, or without a name of a part.
    """
    texts = _texts(template)
    label = "" if texts.get(names.SUBGROUP_TOPOLOGY) else texts.get(names.TOPOLOGY, "")
    own = {names.SUBGROUP: part, names.SUBGROUP_TOPOLOGY: label} if part and label else {}
    return _with_annotations(template, own, without={names.TOPOLOGY, names.TOPOLOGY_PREFERRED, *own})


def in_one_domain(template: Json, label: str) -> dict[str, Any]:
    """Return a pod template that asks for one domain of nodes for the gang."""
    return _with_annotations(template, {names.TOPOLOGY: label}, without={names.TOPOLOGY})


def _texts(template: Json) -> dict[str, str]:
    """Return annotations and labels; a label counts before an annotation of the same key."""
    data = Reader(template).child("metadata")
    return data.pairs("annotations") | data.pairs("labels")


def _with_annotations(template: Json, more: dict[str, str], *, without: set[str]) -> dict[str, Any]:
    """Return a template with more annotations, and without some keys among its labels and annotations."""
    data = Reader(template).child("metadata")
    kept = {
        name: {key: text for key, text in data.pairs(name).items() if key not in without}
        for name in ("labels", "annotations")
    }
    metadata = {**data.value, **kept, "annotations": {**kept["annotations"], **more}}
    return {**template, "metadata": metadata}
