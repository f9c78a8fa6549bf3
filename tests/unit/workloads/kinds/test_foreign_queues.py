"""In which labels and annotations of other systems a pod's queue is read."""

import pytest

from admission.api.values import names
from admission.workloads.kinds import foreign_queues

KUEUE, VOLCANO, GROUP = "kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"
YUNIKORN, KAI, ALIAS = "yunikorn.apache.org/queue", "kai.scheduler/queue", names.QUEUE_ALIAS
APPLICATION = {"applicationId": "a"}

Texts = dict[str, str]

SAID: dict[str, tuple[Texts, Texts, str]] = {
    "Kueue's label": ({KUEUE: "a"}, {}, f"label {KUEUE}: a"),
    "Kueue's label as an annotation": ({}, {KUEUE: "a"}, ""),
    "Volcano's annotation": ({}, {VOLCANO: "a"}, f"annotation {VOLCANO}: a"),
    "Volcano's annotation as a label": ({VOLCANO: "a"}, {}, ""),
    "Volcano's label": ({GROUP: "a"}, {}, f"label {GROUP}: a"),
    "Volcano's label as an annotation": ({}, {GROUP: "a"}, ""),
    "YuniKorn's label": ({YUNIKORN: "a"}, {YUNIKORN: "b"}, f"label {YUNIKORN}: a"),
    "YuniKorn's annotation": ({}, {YUNIKORN: "a"}, f"annotation {YUNIKORN}: a"),
    "a common label beside an application": ({"queue": "a", **APPLICATION}, {}, "label queue: a"),
    "a common label beside an application in an annotation": ({"queue": "a"}, APPLICATION, "label queue: a"),
    "a common label alone": ({"queue": "a"}, {}, ""),
    "a common annotation beside an application": (APPLICATION, {"queue": "a"}, ""),
    "KAI's label": ({KAI: "a"}, {}, f"label {KAI}: a"),
    "KAI's label as an annotation": ({}, {KAI: "a"}, ""),
    "what Muster keeps of a Job's label": ({}, {ALIAS: "a"}, f"annotation {ALIAS}: a"),
    "that as a label": ({ALIAS: "a"}, {}, ""),
    "an empty label": ({KUEUE: "", KAI: "b"}, {}, f"label {KAI}: b"),
}


@pytest.mark.parametrize(("labels", "annotations", "read"), SAID.values(), ids=SAID)
def test_the_queue_of_a_pod_is_read_from_the_labels_of_other_systems(
    labels: Texts, annotations: Texts, read: str
) -> None:
    said = foreign_queues.named_queue(labels, annotations)

    assert (f"{said.where}: {said.name}" if said is not None else "") == read


def test_of_a_jobs_labels_those_are_read_that_its_pods_do_not_have() -> None:
    assert foreign_queues.of_job({KAI: "b", KUEUE: "a"}) == "a"
    assert foreign_queues.of_job({KAI: "b", KUEUE: ""}) == "b"
    assert foreign_queues.of_job({GROUP: "a", YUNIKORN: "b"}) == ""
