"""Checks of a pod's labels and annotations about its gang: names, sizes, topology and runtime.

`admission` calls it for every pod that enters a queue.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from admission.api.values import durations, formats, names
from admission.api.values.reasons import Denial, DenyReason
from admission.podpolicy.pod_view import PodView
from admission.workloads import gang_key, topology
from admission.workloads.gang_key import LARGEST_SIZE, OBJECT_NAME
from admission.workloads.kinds import labels, pod_labels

LONGEST_GANG = 63
"""Characters. A gang's name is an object's name and a label's value; the label has the lower limit."""


def judge(new_pod: PodView) -> Denial | None:
    """Return the first error in the pod's labels and annotations. Only checks of keys that it has are run."""
    keys = KEYS.intersection(new_pod.annotations).union(KEYS.intersection(new_pod.labels or ()))
    if not keys:
        return None
    for check, read in _CHECKS.items():
        if not keys.isdisjoint(read) and (denial := check(new_pod)) is not None:
            return denial
    return None


def _gang_is_a_name(new_pod: PodView) -> Denial | None:
    """Refuse a gang name for which no Gang object can be created."""
    values = new_pod.settings(names.GANG)
    for where, text in values.items():
        if len(text) > LONGEST_GANG or not OBJECT_NAME.fullmatch(text):
            return _malformed(
                names.GANG,
                f"{where} {names.GANG} is {labels.shortened(text)!r}, which no Gang can be called; write at most"
                f" {LONGEST_GANG} lower-case letters, digits, '-' and '.', with a letter or digit at both ends of every"
                " part",
            )
    if len(set(values.values())) > 1:
        label, annotation = values.values()
        return _malformed(names.GANG, f"{names.GANG} is {label} as a label and {annotation} as an annotation; keep one")
    return None


def _sizes_are_numbers(new_pod: PodView) -> Denial | None:
    sizes: dict[str, int] = {}
    for key in (names.GANG_SIZE, names.GANG_MIN):
        for where, text in new_pod.settings(key).items():
            size = gang_key.size_in(text)
            if not size:
                return _malformed(key, f"{where} {key} is {text!r}; write a whole number from 1 to {LARGEST_SIZE}")
            if sizes.setdefault(key, size) != size:
                return _malformed(key, f"{key} is {sizes[key]} as a label and {size} as an annotation; keep one")
    least, most = sizes.get(names.GANG_MIN), sizes.get(names.GANG_SIZE)
    if least is not None and most is not None and least > most:
        return _malformed(
            names.GANG_MIN, f"{names.GANG_MIN} is {least}, more than {names.GANG_SIZE}, which is {most}; lower it"
        )
    return None


def _foreign_group_sizes_are_numbers(new_pod: PodView) -> Denial | None:
    """Refuse a size in another system's annotation that is not a whole number, which that system would refuse too."""
    for key in pod_labels.NUMBERS:
        text = new_pod.annotations.get(key)
        if text and not labels.number(text):
            return _malformed(key, f"annotation {key} is {labels.shortened(text)!r}; write a whole number from 1")
    return None


def _topology_is_a_label(new_pod: PodView) -> Denial | None:
    for key in topology.KEYS:
        values = set[str]()
        for where, text in new_pod.settings(key).items():
            problem = formats.key(text)
            if problem is not None:
                return _malformed(key, f"{where} {key}: {problem}; write the key of a label of nodes")
            values.add(text)
        if len(values) > 1:
            label, annotation = new_pod.settings(key).values()
            return _malformed(key, f"{key} is {label} as a label and {annotation} as an annotation; keep one")
    return None


def _subgroup_is_a_name(new_pod: PodView) -> Denial | None:
    values = new_pod.settings(names.SUBGROUP)
    for where, text in values.items():
        problem = formats.value(text)
        if problem is not None:
            return _malformed(names.SUBGROUP, f"{where} {names.SUBGROUP}: {problem}")
    if len(set(values.values())) > 1:
        label, annotation = values.values()
        return _malformed(
            names.SUBGROUP, f"{names.SUBGROUP} is {label} as a label and {annotation} as an annotation; keep one"
        )
    return None


def _runtime_is_a_duration(new_pod: PodView) -> Denial | None:
    for where, text in new_pod.settings(names.RUNTIME).items():
        problem = _problem_of_duration(text[: durations.LONGEST + 1])
        if problem:
            return _malformed(names.RUNTIME, f"{where} {names.RUNTIME}: {problem}")
    return None


@lru_cache(maxsize=1024)
def _problem_of_duration(text: str) -> str:
    """Return what is wrong with a duration. Cached, since a cluster's pods repeat a few of them."""
    try:
        durations.parse_positive(text)
    except ValueError as error:
        return str(error)
    return ""


def _malformed(key: str, message: str) -> Denial:
    return Denial(DenyReason.MALFORMED_REQUEST, message, {"key": key})


_CHECKS: Mapping[Callable[[PodView], Denial | None], Collection[str]] = {
    _gang_is_a_name: {names.GANG},
    _sizes_are_numbers: {names.GANG_SIZE, names.GANG_MIN},
    _foreign_group_sizes_are_numbers: pod_labels.NUMBERS,
    _topology_is_a_label: topology.KEYS,
    _subgroup_is_a_name: {names.SUBGROUP},
    _runtime_is_a_duration: {names.RUNTIME},
}
"""The checks in order, with the keys that each reads."""

KEYS = frozenset().union(*_CHECKS.values())
"""All labels and annotations that any check reads."""
