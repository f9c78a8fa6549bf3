"""Ask the doors about pods, as the webhook does."""

from typing import Any

from admission.api.kubernetes.admission_review import Verdict
from admission.api.snapshot import Snapshot
from admission.api.values.json_patch import Patch
from admission.api.values.reasons import Denial
from admission.policy import arrivals, changing, doors
from admission.policy.arrivals import Arrival
from admission.policy.remembering import Memory
from tests.unit.webhook.cases import RULES, World

OTHER_GATE = {"name": "example.com/quarantine"}


def gangs(**settings: str) -> dict[str, str]:
    return {f"muster.dev/{key.replace('_', '-')}": value for key, value in settings.items()}


def judge(world: World, pod: dict[str, Any]) -> Verdict:
    return judged(arrivals.decode(pod, "ml"), world.build())


def judged(arrival: Arrival, snapshot: Snapshot) -> Verdict:
    return doors.judge_creation(arrival, snapshot, rules=RULES, defaults=Memory().defaults(snapshot))


def added(arrival: Arrival, snapshot: Snapshot) -> Patch:
    return doors.additions(arrival, snapshot, Memory().defaults(snapshot))


def change(old: dict[str, Any], new: dict[str, Any], *, username: str = "alice") -> Denial | None:
    before, after = arrivals.decode(old, "ml"), arrivals.decode(new, "ml")
    return changing.judge(before, after, username=username, rules=RULES)
