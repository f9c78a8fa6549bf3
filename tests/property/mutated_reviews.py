"""Reviews that an API server may send of every kind that the webhook answers for, with random changes of their JSON.

`review(seed)` is the same in every run. What `reviews` draws is of pods, claims, Jobs and Muster's own objects; these
are of all kinds alike, and begin as what the API server sends, so that most changes are met behind the first check.
"""

import base64
import copy
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import yaml

from admission.api.values import names
from admission.review.caches import ReviewCaches
from admission.webhook import handler
from admission.workloads import template_labels
from tests.property import hostile_reviews
from tests.unit.podpolicy import test_workload_queue
from tests.unit.webhook import cases

Json = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "config" / "examples"
PLURALS = {
    "Queue": "queues",
    "Meter": "meters",
    "ClaimPolicy": "claimpolicies",
    "NodeShape": "nodeshapes",
    "Gang": "gangs",
}
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**31, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, "", "x", "ml", "team-a", "2", "8Gi",
    "0.5", "1h", "\x00", "\ud800", "é", "\u202e", "a" * 300, "9" * 400, "../..", "a/b/c", "=", ",", "gpu=t", "{}",
    [], {}, [None], [[]], [{}], ["x", "x"], {"": ""}, {"x": None}, {"metadata": []}, {"name": 1}, [{"name": []}],
)  # fmt: skip
"""What stands in a place where something else belongs."""

KEYS = ("", "x", "metadata", "labels", "spec", "template", "name", "0", "a/b", "~", "~1", names.QUEUE, names.CLAIMS)
USERS = ("alice", "alice", "alice", cases.CONTROLLER, "")


class Sent(NamedTuple):
    """A kind of objects that the webhook answers for. made: by the doors before, as its author's `written` becomes."""

    group: str
    version: str
    plural: str
    written: Json
    made: Json


def review(seed: int) -> tuple[str, Json]:
    """Return the door that a review comes to, and the review, of a seed."""
    choice = random.Random(seed)  # noqa: S311 - nothing secret
    sent = choice.choice(_sent())
    door, operations = choice.choice(_doors(sent))
    operation = choice.choice(operations if choice.random() < 0.95 else ("CREATE", "UPDATE", "DELETE", "CONNECT"))
    obj, old = (copy.deepcopy(sent.made if door == "validate" else sent.written) for _ in range(2))
    more = {"version": sent.version, "operation": operation}
    if sent.plural == "pods" and door == "validate" and choice.random() < 0.3:
        more["subResource"] = choice.choice(("resize", "status", "binding", "ephemeralcontainers", "eviction"))
    is_new = operation == "CREATE"
    found: Json = json.loads(hostile_reviews.body(sent.group, sent.plural, obj, old=None if is_new else old, **more))
    found["request"]["userInfo"]["username"] = choice.choice(USERS)
    if operation == "DELETE":
        found["request"]["object"] = None
    for _ in range(choice.choice((0, 1, 1, 2, 3, 6))):
        _change(choice, found)
    return door, found


def _doors(sent: Sent) -> list[tuple[str, tuple[str, ...]]]:
    """Return the doors that a kind comes to, each with the operations that it is registered for."""
    if sent.group == names.GROUP:
        return [("validate", ("CREATE", "UPDATE", "DELETE"))]
    if sent.plural == "pods" or sent.group == "resource.k8s.io":
        return [("mutate", ("CREATE",)), ("validate", ("CREATE", "UPDATE"))]
    changes = ("CREATE", "UPDATE")
    return [("hold", changes), ("validate", changes), *([("mutate", ("CREATE",))] if sent.plural == "jobs" else [])]


@cache
def _sent() -> tuple[Sent, ...]:
    """Return the kinds, pods and claims more than once, so that they are drawn more often."""
    doors = hostile_reviews.doors(cases.MemoryView(hostile_reviews.a_snapshot()), ReviewCaches())
    found: list[Sent] = []
    for group, version, plural, written in _written():
        obj: Json = json.loads(json.dumps(written))  # which shares no parts
        first = "hold" if (group, plural) in template_labels.BY_RESOURCE else "mutate"
        made = obj
        if group != names.GROUP:
            body = hostile_reviews.body(group, plural, obj, version=version)
            made = jsonpatch.apply_patch(obj, _patch(handler.answer(body, doors[first])))
        found.append(Sent(group, version, plural, obj, made))
    return tuple(found)


def _patch(answer: handler.Answer) -> Any:
    text = json.loads(answer.body)["response"].get("patch")
    return json.loads(base64.b64decode(text)) if text else []


def _written() -> Iterator[tuple[str, str, str, Json]]:
    """Yield group, version, plural and an object with nothing wrong of every kind."""
    extended = [cases.CONTAINER | {"resources": {"limits": {hostile_reviews.RESOURCE: 2}, "requests": {"cpu": "1"}}}]
    annotations = {names.CLAIMS: "gpu=t", names.GANG: "g", names.GANG_SIZE: "2", names.RUNTIME: "4h"}
    owned = cases.a_pod(labels={names.QUEUE: "team-a"}, templates=("t",), containers=extended)
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    ]
    for _ in range(3):
        yield "", "v1", "pods", cases.a_pod()
        yield "", "v1", "pods", cases.a_pod(labels={names.QUEUE: "team-a", "a": "b"}, annotations=annotations)
        yield "", "v1", "pods", cases.held(containers=extended, initContainers=extended, claims=("c",))
        yield "", "v1", "pods", owned
    either = cases.either("nic", ("one", hostile_reviews.CLASS, 1), ("two", hostile_reviews.CLASS, 2))
    selected = cases.exactly("gpu", hostile_reviews.CLASS)
    selected["exactly"]["selectors"] = [{"cel": {"expression": "device.driver == 'x'"}}]
    constraints = [{"requests": ["gpu"], "matchAttribute": "a.example.com/numa"}]
    claim = hostile_reviews.claim_of([selected, either], constraints=constraints)
    template = {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}
    for _ in range(3):
        yield "resource.k8s.io", "v1", "resourceclaims", claim
        yield "resource.k8s.io", "v1", "resourceclaimtemplates", template
    for case in test_workload_queue.EVERY:
        obj = test_workload_queue.of_case(case, "team-a")
        obj["spec"] |= {"suspend": False, "replicas": 2, "parallelism": 2}
        group, _, version = obj["apiVersion"].rpartition("/")
        yield group, version, template_labels.BY_GROUP[group, obj["kind"]].plural, obj
    for file in sorted(EXAMPLES.rglob("*.yaml")):
        for obj in yaml.safe_load_all(file.read_text()):
            if obj and obj["kind"] in PLURALS:
                yield names.GROUP, names.VERSION, PLURALS[obj["kind"]], obj


def _change(choice: random.Random, review: Json) -> None:
    """Change one place: most often of the objects, seldom of the request."""
    request = review.get("request")
    objects = [request.get(name) for name in ("object", "oldObject")] if isinstance(request, dict) else []
    parts = [*filter(None, objects)]
    places = [*_places(choice.choice(parts) if parts and choice.random() < 0.9 else review)]
    if not places:
        return
    holder, key = choice.choice(places)
    value = holder[key]
    match choice.randrange(8):
        case 0:
            del holder[key]
        case 1 | 2 | 3:
            holder[key] = copy.deepcopy(choice.choice(ODD))
        case 4:
            other, at = choice.choice(places)
            holder[key] = copy.deepcopy(other[at])
        case 5:
            holder[key] = choice.choice(([value], {"x": value}, [value, copy.deepcopy(value)]))
        case 6 if isinstance(value, dict):
            value[choice.choice(KEYS)] = copy.deepcopy(choice.choice(ODD))
        case 7 if isinstance(value, list):
            value.insert(choice.randint(0, len(value)), copy.deepcopy(choice.choice(ODD)))
        case _ if isinstance(holder, dict):
            holder[choice.choice(KEYS)] = copy.deepcopy(value)
        case _:
            holder.append(copy.deepcopy(value))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and key of everything within a value."""
    if not isinstance(value, dict | list):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        yield from _places(inner)
