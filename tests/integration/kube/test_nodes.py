"""The annotations of nodes for autoscalers: what is sent, and what becomes of changes by others meanwhile."""

from typing import Any

import pytest

from admission.api.kubernetes import nodes
from admission.api.kubernetes.nodes import Node
from admission.errors import ForbiddenError, GoneError
from admission.kube.client.connection import Connection
from admission.kube.writers.nodes import NodeWriter
from tests.integration.kube.fake_api import FakeApi, status

NODES = "/api/v1/nodes"
PATH = f"{NODES}/n1"
CA, KARPENTER = "cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"
MARK = "muster.dev/scale-down-disabled"


def a_node(api: FakeApi, **annotations: str) -> Node:
    return nodes.decode(api.put(NODES, {"metadata": {"name": "n1", "annotations": annotations}}))


def stored(api: FakeApi) -> Any:
    return api.objects[NODES]["n1"]["metadata"]["annotations"]


async def test_a_node_gets_what_it_lacks_with_a_mark_that_says_what(api: FakeApi, connection: Connection) -> None:
    node = a_node(api, **{CA: "true"})

    await NodeWriter(connection).keep(node)

    sent = api.last("PATCH", PATH)
    assert sent.content == "application/merge-patch+json"
    assert sent.body["metadata"] == {
        "uid": node.meta.uid,
        "resourceVersion": node.meta.resource_version,
        "annotations": {KARPENTER: "true", MARK: KARPENTER},
    }


async def test_only_what_muster_put_there_is_removed(api: FakeApi, connection: Connection) -> None:
    node = a_node(api, **{CA: "true", KARPENTER: "true", MARK: KARPENTER})

    await NodeWriter(connection).release(node)

    assert api.last("PATCH", PATH).body["metadata"]["annotations"] == {KARPENTER: None, MARK: None}


async def test_the_present_node_decides_and_not_the_one_that_was_seen(api: FakeApi, connection: Connection) -> None:
    node = a_node(api)
    a_node(api, **{KARPENTER: "true", MARK: KARPENTER})

    await NodeWriter(connection).keep(node)

    assert api.count("PATCH", PATH) == 0


async def test_a_change_meanwhile_makes_it_read_again(api: FakeApi, connection: Connection) -> None:
    node = a_node(api)
    api.answer("PATCH", PATH, 409, status(409, "Conflict", "the object has been modified"))

    await NodeWriter(connection).keep(node)

    assert (api.count("GET", PATH), api.count("PATCH", PATH)) == (2, 2)
    assert stored(api)[MARK] == f"{CA},{KARPENTER}"


async def test_another_node_of_the_name_is_left_alone(api: FakeApi, connection: Connection) -> None:
    node = a_node(api)
    api.objects[NODES]["n1"]["metadata"]["uid"] = "another"

    with pytest.raises(GoneError):
        await NodeWriter(connection).keep(node)

    assert api.count("PATCH", PATH) == 0


async def test_without_the_right_it_is_told(api: FakeApi, connection: Connection) -> None:
    node = a_node(api)
    api.answer("PATCH", PATH, 403, status(403, "Forbidden", 'nodes "n1" is forbidden: cannot patch resource "nodes"'))

    with pytest.raises(ForbiddenError):
        await NodeWriter(connection).keep(node)
