"""The finalizer of Queues: what is sent, and what becomes of changes by others meanwhile."""

from typing import Any

import pytest
import structlog

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.errors import ConflictError, ForbiddenError
from admission.kube.client.connection import Connection
from admission.kube.writers.queue_finalizer import TRIES, QueueFinalizerWriter
from tests.integration.kube.fake_api import FakeApi, status

PATH = "/apis/muster.dev/v1alpha1/queues/q"
DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
CONFLICT = (409, status(409, "Conflict", "the object has been modified"))


def an_object(*finalizers: str, version: str = "7", uid: str = "u1", **more: Any) -> dict[str, Any]:
    values = {"name": "q", "uid": uid, "resourceVersion": version, "finalizers": list(finalizers), **more}
    return {"kind": "Queue", "metadata": values}


def a_queue(*finalizers: str, **more: Any) -> Meta:
    return meta.decode(Reader(an_object(*finalizers, **more)))


async def test_the_finalizer_comes_after_those_of_others_in_a_write_that_names_uid_and_version(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("PATCH", PATH, 200, an_object())

    await QueueFinalizerWriter(connection).keep(a_queue("example.org/backup"))

    asked = api.last("PATCH", PATH)
    assert asked.content == "application/merge-patch+json"
    assert asked.body == {
        "metadata": {"uid": "u1", "resourceVersion": "7", "finalizers": ["example.org/backup", names.IN_USE]}
    }


async def test_only_the_queue_finalizer_of_muster_is_removed(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 200, an_object())

    await QueueFinalizerWriter(connection).release(a_queue("example.org/backup", names.IN_USE, **DELETED))

    assert api.last("PATCH", PATH).body["metadata"]["finalizers"] == ["example.org/backup"]


@pytest.mark.parametrize(("more", "logged"), [(DELETED, 1), ({}, 0)], ids=["deleted", "taken away"])
async def test_a_queue_is_said_to_be_unused_only_where_it_is_deleted(
    api: FakeApi, connection: Connection, more: dict[str, Any], logged: int
) -> None:
    api.answer("PATCH", PATH, 200, an_object())

    with structlog.testing.capture_logs() as logs:
        await QueueFinalizerWriter(connection).release(a_queue(names.IN_USE, **more))

    assert len([log for log in logs if "nothing uses it" in log["event"]]) == logged


async def test_a_change_by_somebody_else_is_kept(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, *CONFLICT)
    api.answer("GET", PATH, 200, an_object("example.org/backup", version="8"))
    api.answer("PATCH", PATH, 200, an_object())

    await QueueFinalizerWriter(connection).keep(a_queue())

    assert api.last("PATCH", PATH).body == {
        "metadata": {"uid": "u1", "resourceVersion": "8", "finalizers": ["example.org/backup", names.IN_USE]}
    }


NOTHING_TO_DO: dict[str, dict[str, Any]] = {
    "it has the finalizer meanwhile": an_object(names.IN_USE, version="8"),
    "it is being deleted meanwhile": an_object(version="8", **DELETED),
    "another has its name meanwhile": an_object(version="8", uid="u2"),
}


@pytest.mark.parametrize("fresh", NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
async def test_no_queue_finalizer_is_added_when_a_conflict_shows_that_none_is_needed(
    api: FakeApi, connection: Connection, fresh: dict[str, Any]
) -> None:
    api.answer("PATCH", PATH, *CONFLICT)
    api.answer("GET", PATH, 200, fresh)

    await QueueFinalizerWriter(connection).keep(a_queue())

    assert api.count("PATCH", PATH) == 1


async def test_a_queue_that_is_gone_needs_nothing(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 404, status(404, "NotFound", "gone"))

    await QueueFinalizerWriter(connection).release(a_queue(names.IN_USE, **DELETED))

    assert api.count("PATCH", PATH) == 1


async def test_a_queue_that_changes_again_and_again_is_left_for_later(api: FakeApi, connection: Connection) -> None:
    for _ in range(TRIES):
        api.answer("PATCH", PATH, *CONFLICT)
        api.answer("GET", PATH, 200, an_object(version="8"))

    with pytest.raises(ConflictError):
        await QueueFinalizerWriter(connection).keep(a_queue())


async def test_a_missing_right_to_write_queue_finalizers_is_named(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 403, status(403, "Forbidden", 'User "muster" cannot patch resource "queues"'))

    with pytest.raises(ForbiddenError, match=r"verb patch on resource queues of API group muster\.dev"):
        await QueueFinalizerWriter(connection).keep(a_queue())
