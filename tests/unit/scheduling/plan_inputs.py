"""Review pods as the webhook does."""

from typing import Any

from admission.api.kubernetes.admission_review import Verdict
from admission.api.snapshot import Snapshot
from admission.api.values.json_patch import Patch
from admission.api.values.reasons import Denial
from admission.podpolicy import admission, pod_view, queue_selection, update
from admission.podpolicy.pod_view import PodView
from admission.review.caches import ReviewCaches
from tests.unit.webhook.cases import RULES, World

OTHER_GATE = {"name": "example.com/quarantine"}


def gangs(**settings: str) -> dict[str, str]:
    return {f"muster.dev/{key.replace('_', '-')}": value for key, value in settings.items()}


def judge(cluster: World, pod: dict[str, Any]) -> Verdict:
    return judged(pod_view.decode(pod, "ml"), cluster.build())


def judged(arrival: PodView, snapshot: Snapshot) -> Verdict:
    return admission.judge_creation(arrival, snapshot, rules=RULES, defaults=ReviewCaches().defaults(snapshot))


def added(arrival: PodView, snapshot: Snapshot) -> Patch:
    queue = queue_selection.select_queue(arrival, snapshot, ReviewCaches().defaults(snapshot)).queue
    return admission.additions(arrival, queue)


def change(
    old: dict[str, Any], new: dict[str, Any], *, username: str = "alice", cluster: World | None = None
) -> Denial | None:
    before, after = pod_view.decode(old, "ml"), pod_view.decode(new, "ml")
    queues = cluster.build().queues if cluster is not None else {}
    return update.judge(before, after, username=username, rules=RULES, queues=queues)
