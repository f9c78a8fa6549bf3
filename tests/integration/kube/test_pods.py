"""Gates and evictions: what is sent, and what happens when the pod is not what it was."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.names import NodeName
from admission.errors import ConflictError, FixError, ForbiddenError, GoneError, RetryError
from admission.kube.client.connection import Connection
from admission.kube.writers import pod_patch
from admission.kube.writers.pods import PodWriter
from tests.integration.kube.fake_api import FakeApi, status
from tests.unit.kube.builders import PODS, a_pod, read, required

PATH = "/api/v1/namespaces/team/pods/a"
EVICTION = f"{PATH}/eviction"
NODE = NodeName("n1")
HERE = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["x", "y"]}
GPU = {"key": "gpu", "operator": "Exists"}
POOL = {"key": "pool", "operator": "In", "values": ["a"]}
TYPE = {"key": "type", "operator": "In", "values": ["x8"]}
THERE = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}

PINS: dict[str, tuple[dict[str, Any] | None, list[dict[str, Any]]]] = {
    "a pod without affinity gets a term": (None, [{"matchFields": [HERE]}]),
    "a term gains the node at its end": (
        required({"matchExpressions": [ZONE, GPU]}),
        [{"matchExpressions": [ZONE, GPU], "matchFields": [HERE]}],
    ),
    "every term gains it": (
        required({"matchExpressions": [ZONE]}, {"matchFields": [THERE]}),
        [{"matchExpressions": [ZONE], "matchFields": [HERE]}, {"matchFields": [THERE, HERE]}],
    ),
    "a term that matches nothing goes on matching nothing": (
        required({}, {"matchExpressions": [GPU]}),
        [{}, {"matchExpressions": [GPU], "matchFields": [HERE]}],
    ),
    "a pod that is pinned there already gains nothing": (
        required({"matchFields": [HERE]}),
        [{"matchFields": [HERE]}],
    ),
}


@pytest.mark.parametrize(("affinity", "terms"), PINS.values(), ids=PINS)
def test_a_pin_demands_the_node_besides_what_the_author_demands(
    affinity: dict[str, Any] | None, terms: list[dict[str, Any]]
) -> None:
    pod = read(a_pod(affinity=affinity) if affinity else a_pod())

    patch = pod_patch.opened(pod, (pod_patch.on_node(NODE),))

    assert patch["spec"]["affinity"] == required(*terms)


TOWARDS: dict[str, tuple[dict[str, Any] | None, list[dict[str, Any]]]] = {
    "a pod without affinity gets a term": (None, [{"matchExpressions": [POOL, TYPE]}]),
    "every term gains the labels that it lacks": (
        required({"matchExpressions": [ZONE]}, {"matchExpressions": [TYPE], "matchFields": [THERE]}),
        [{"matchExpressions": [ZONE, POOL, TYPE]}, {"matchExpressions": [TYPE, POOL], "matchFields": [THERE]}],
    ),
    "a term that matches nothing goes on matching nothing": (required({}), [{}]),
}


@pytest.mark.parametrize(("affinity", "terms"), TOWARDS.values(), ids=TOWARDS)
async def test_a_pod_that_is_let_in_towards_nodes_is_kept_to_their_labels_and_to_no_name(
    api: FakeApi, connection: Connection, affinity: dict[str, Any] | None, terms: list[dict[str, Any]]
) -> None:
    pod = read(api.put(PODS, a_pod(affinity=affinity) if affinity else a_pod()))

    await PodWriter(connection).open_gate_towards(pod, {"type": "x8", "pool": "a"})

    assert api.last("PATCH", PATH).body["spec"] == {
        "schedulingGates": [{"$patch": "delete", "name": names.GATE}],
        "affinity": required(*terms),
    }


async def test_one_write_opens_the_gate_and_pins_the_pod(api: FakeApi, connection: Connection) -> None:
    stored = api.put(PODS, a_pod(gates=(names.GATE, "other/gate")))
    seen = read(stored)

    await PodWriter(connection).open_gate(seen, NODE)

    sent = api.last("PATCH", PATH)
    assert sent.content == "application/strategic-merge-patch+json"
    assert "as=PartialObjectMetadata" in sent.accept, "nobody reads the answer"
    assert sent.body == {
        "metadata": {"uid": stored["metadata"]["uid"], "resourceVersion": seen.meta.resource_version},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": names.GATE}],
            "affinity": required({"matchFields": [HERE]}),
        },
    }
    left = api.objects[PODS]["team/a"]["spec"]["schedulingGates"]
    assert left == [{"name": "other/gate"}], "the gates of others stay"


async def test_a_gate_is_opened_without_a_pin(api: FakeApi, connection: Connection) -> None:
    await PodWriter(connection).open_gate(read(api.put(PODS, a_pod())), None)

    assert "affinity" not in api.last("PATCH", PATH).body["spec"]


async def test_an_open_gate_is_left_alone(api: FakeApi, connection: Connection) -> None:
    await PodWriter(connection).open_gate(read(api.put(PODS, a_pod(gates=()))), NODE)

    assert api.count("PATCH", PATH) == 0


async def test_a_conflict_is_tried_again_from_what_the_pod_has_become(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.put(PODS, a_pod(affinity=required({"matchExpressions": [GPU]})))
    api.answer("PATCH", PATH, 409, status(409, "Conflict", "modified"))

    await PodWriter(connection).open_gate(seen, NODE)

    sent = api.last("PATCH", PATH).body["spec"]["affinity"]
    assert sent == required({"matchExpressions": [GPU], "matchFields": [HERE]})


async def test_an_affinity_added_meanwhile_is_kept(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.put(PODS, a_pod(affinity=required({"matchExpressions": [GPU]})))
    api.answer("PATCH", PATH, 422, status(422, "Invalid", "no additions/deletions to terms are allowed"))

    await PodWriter(connection).open_gate(seen, NODE)

    sent = api.last("PATCH", PATH).body["spec"]["affinity"]
    assert sent == required({"matchExpressions": [GPU], "matchFields": [HERE]})


async def test_a_gate_that_somebody_opened_meanwhile_is_open(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.put(PODS, a_pod(gates=()))
    api.answer("PATCH", PATH, 422, status(422, "Invalid", "pod updates may not change affinity"))

    await PodWriter(connection).open_gate(seen, NODE)

    assert api.count("PATCH", PATH) == 1


async def test_an_invalid_change_is_not_tried_again(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.answer("PATCH", PATH, 422, status(422, "Invalid", "spec: whatever"))

    with pytest.raises(FixError, match="spec: whatever"):
        await PodWriter(connection).open_gate(seen, NODE)

    assert api.count("PATCH", PATH) == 1


async def test_a_missing_role_is_not_tried_again(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.answer("PATCH", PATH, 403, status(403, "Forbidden", "no"))

    with pytest.raises(ForbiddenError):
        await PodWriter(connection).open_gate(seen, NODE)

    assert api.count("GET", PATH) == 0


async def test_a_pod_with_conflicts_without_end_is_for_the_next_cycle(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    for _ in range(4):
        api.answer("PATCH", PATH, 409, status(409, "Conflict", "modified"))

    with pytest.raises(ConflictError):
        await PodWriter(connection).open_gate(seen, NODE)


async def test_the_gate_of_a_requeued_pod_is_not_opened_by_a_leader_with_an_older_view(
    api: FakeApi, connection: Connection
) -> None:
    """Of a leader that was deposed while it opened gates, or of a request whose answer never came."""
    seen = read(api.put(PODS, a_pod()))

    assert await PodWriter(connection).close_gate(seen)
    with pytest.raises(ConflictError, match="taken back"):
        await PodWriter(connection).open_gate(seen, NODE)
    between = read(api.objects[PODS]["team/a"])
    assert await PodWriter(connection).close_gate(between)
    with pytest.raises(ConflictError, match="taken back"):
        await PodWriter(connection).open_gate(between, NODE)

    assert read(api.objects[PODS]["team/a"]).gated


async def test_the_gate_of_a_requeued_pod_can_be_opened_after_a_new_grant(api: FakeApi, connection: Connection) -> None:
    assert await PodWriter(connection).close_gate(read(api.put(PODS, a_pod())))

    await PodWriter(connection).open_gate(read(api.objects[PODS]["team/a"]), NODE)

    assert not read(api.objects[PODS]["team/a"]).gated


async def test_a_gate_that_is_open_cannot_be_shut_again(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.put(PODS, a_pod(gates=()))

    assert not await PodWriter(connection).close_gate(seen)

    assert api.count("PATCH", PATH) == 0


async def test_the_gate_of_a_pod_that_is_gone_stays_shut(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.delete(PODS, "team/a")

    assert await PodWriter(connection).close_gate(seen)


async def test_a_pod_that_changes_while_its_gate_is_shut_is_read_again(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.answer("PATCH", PATH, 409, status(409, "Conflict", "modified"))

    assert await PodWriter(connection).close_gate(seen)

    assert api.count("PATCH", PATH) == 2


async def test_the_gate_of_a_pod_recreated_under_the_name_is_not_opened(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.delete(PODS, "team/a")
    api.put(PODS, a_pod())

    with pytest.raises(GoneError, match="another has its name"):
        await PodWriter(connection).open_gate(seen, NODE)

    assert api.objects[PODS]["team/a"]["spec"]["schedulingGates"] == [{"name": names.GATE}]


async def test_a_pod_that_is_gone_is_gone(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.delete(PODS, "team/a")

    with pytest.raises(GoneError):
        await PodWriter(connection).open_gate(seen, NODE)


async def test_an_eviction_names_the_very_pod(api: FakeApi, connection: Connection) -> None:
    stored = api.put(PODS, a_pod())
    api.answer("POST", EVICTION, 201, {"kind": "Status"})

    await PodWriter(connection).evict(read(stored), "its gang did not start in time")

    assert api.last("POST", EVICTION).body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": "team"},
        "deleteOptions": {"preconditions": {"uid": stored["metadata"]["uid"]}},
    }


@pytest.mark.parametrize(
    ("code", "body"),
    [(404, "404 page not found"), (405, status(405, "MethodNotAllowed", "no"))],
    ids=["no such subresource", "not taken"],
)
async def test_where_nothing_can_be_evicted_the_pod_is_deleted(
    api: FakeApi, connection: Connection, code: int, body: Any
) -> None:
    stored = api.put(PODS, a_pod())
    api.answer("POST", EVICTION, code, body)

    await PodWriter(connection).evict(read(stored), "why")

    assert api.last("DELETE", PATH).body["preconditions"] == {"uid": stored["metadata"]["uid"]}
    assert "team/a" not in api.objects[PODS]


async def test_a_disruption_budget_asks_to_come_back(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    for _ in range(3):
        api.answer("POST", EVICTION, 429, status(429, "TooManyRequests", "it would violate the disruption budget"))

    with pytest.raises(RetryError, match="disruption budget"):
        await PodWriter(connection).evict(seen, "why")

    assert api.count("DELETE", PATH) == 0


async def test_evicting_a_pod_that_is_gone_does_no_harm(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.answer("POST", EVICTION, 404, status(404, "NotFound", "not found", name="a"))
    await PodWriter(connection).evict(seen, "why")
    api.delete(PODS, "team/a")
    await PodWriter(connection).evict(seen, "why")

    assert api.count("DELETE", PATH) == 0
    assert api.count("POST", EVICTION) == 1


async def test_a_pod_that_ends_already_is_not_evicted(api: FakeApi, connection: Connection) -> None:
    ending = a_pod()
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    await PodWriter(connection).evict(read(api.put(PODS, ending)), "why")

    assert api.count("POST", EVICTION) == 0


async def test_evicting_spares_another_pod_of_the_name(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.delete(PODS, "team/a")
    api.put(PODS, a_pod())

    await PodWriter(connection).evict(seen, "why")

    assert api.count("POST", EVICTION) == 0
    assert "team/a" in api.objects[PODS]


async def test_an_eviction_that_meets_a_change_is_asked_for_again(api: FakeApi, connection: Connection) -> None:
    seen = read(api.put(PODS, a_pod()))
    api.answer("POST", EVICTION, 409, status(409, "Conflict", "modified"))
    api.answer("POST", EVICTION, 201, {"kind": "Status"})

    await PodWriter(connection).evict(seen, "why")

    assert api.count("POST", EVICTION) == 2
