"""Who comes in whose stead: by name, or by all of it but what controllers draw by lot."""

import pytest

from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import GangUid, NodeName
from admission.scheduling.checks import replacement_slots
from admission.scheduling.checks.replacement_slots import ReplacementSlot


def a_pod(name: str) -> Pod:
    return pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {}})


def places(*names: str) -> tuple[ReplacementSlot, ...]:
    return tuple(ReplacementSlot(f"team/{name}", NodeName(f"on-{name}")) for name in names)


CASES = {
    "a pod of the same name": (("web-0", "web-1"), ("web-1",), ("web-0",)),
    "the same index of a Job": (("job-0-abcde", "job-1-fghij"), ("job-1-zzzzz",), ("job-0-abcde",)),
    "any of a Job without indices, the latest first": (("job-abcde", "job-fghij"), ("job-zzzzz",), ("job-abcde",)),
    "its own before that of one alike": (("web-0", "web-1"), ("web-2", "web-0"), ()),
    "one pod for one place": (("job-abcde",), ("job-x", "job-y"), ()),
    "nobody comes": (("web-0",), (), ("web-0",)),
    "another pod": (("head",), ("worker-0",), ("head",)),
}


@pytest.mark.parametrize(("left", "come", "vacant"), CASES.values(), ids=CASES)
def test_an_admitted_pod_takes_a_replacement_slot(
    left: tuple[str, ...], come: tuple[str, ...], vacant: tuple[str, ...]
) -> None:
    assert replacement_slots.without_filled(places(*left), map(a_pod, come)) == places(*vacant)


def test_replacement_slots_of_a_gang_end_with_its_placement_in_the_ledger() -> None:
    assert replacement_slots.after({GangUid("g"): places("web-0")}, {}, []) == {}
