"""Jobs that are suspended to take their pods back: what is sent."""

import pytest

from admission.api.kubernetes import jobs
from admission.api.kubernetes.jobs import Job, Suspendable
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.names import Uid
from admission.errors import GoneError
from admission.kube.client.connection import Connection
from admission.kube.writers.workloads import WorkloadWriter
from tests.integration.kube.fake_api import FakeApi, status

PATH = "/apis/batch/v1/namespaces/team/jobs/train"


def a_job() -> Job:
    return jobs.decode({"metadata": {"name": "train", "namespace": "team", "uid": "u1"}, "spec": {}})


async def test_a_job_is_suspended_and_marked_in_one_write_that_names_the_uid(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("PATCH", PATH, 200, {"kind": "Job"})

    await WorkloadWriter(connection).suspend(a_job())

    asked = api.last("PATCH", PATH)
    assert asked.content == "application/merge-patch+json"
    assert asked.body == {
        "metadata": {"uid": "u1", "annotations": {names.REQUEUED: "true"}},
        "spec": {"suspend": True},
    }


async def test_a_job_is_resumed_and_the_mark_taken_away(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 200, {"kind": "Job"})

    await WorkloadWriter(connection).resume(a_job())

    assert api.last("PATCH", PATH).body == {
        "metadata": {"uid": "u1", "annotations": {names.REQUEUED: None}},
        "spec": {"suspend": False},
    }


async def test_a_job_that_is_gone_need_not_be_resumed(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 404, status(404, "NotFound", "gone"))

    await WorkloadWriter(connection).resume(a_job())

    assert api.last("PATCH", PATH).body["spec"] == {"suspend": False}


MPI = Suspendable(
    meta=Meta(name="mpi", namespace="team", uid=Uid("u2")),
    group="kubeflow.org",
    versions=("v2beta1", "v1"),
    plural="mpijobs",
    suspend=("spec", "runPolicy", "suspend"),
)


async def test_a_workload_is_held_and_started_in_one_write_that_names_its_uid(
    api: FakeApi, connection: Connection
) -> None:
    path = "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/mpi"
    writer = WorkloadWriter(connection)
    for write, suspend, mark in ((writer.hold, True, "waiting"), (writer.start, False, "started")):
        api.answer("PATCH", path, 200, {"kind": "MPIJob"})

        await write(MPI)

        assert api.last("PATCH", path).body == {
            "metadata": {"uid": "u2", "annotations": {names.HELD: mark}},
            "spec": {"runPolicy": {"suspend": suspend}},
        }


async def test_a_workload_is_written_to_in_the_version_that_is_served(api: FakeApi, connection: Connection) -> None:
    new, old = (f"/apis/kubeflow.org/{version}/namespaces/team/mpijobs/mpi" for version in MPI.versions)
    api.answer("PATCH", new, 404, "404 page not found")
    api.answer("PATCH", old, 200, {"kind": "MPIJob"})

    await WorkloadWriter(connection).start(MPI)

    assert api.last("PATCH", old).body["spec"] == {"runPolicy": {"suspend": False}}


async def test_a_workload_that_is_gone_in_every_version_is_gone(api: FakeApi, connection: Connection) -> None:
    for version in MPI.versions:
        path = f"/apis/kubeflow.org/{version}/namespaces/team/mpijobs/mpi"
        api.answer("PATCH", path, 404, status(404, "NotFound", "gone"))

    with pytest.raises(GoneError):
        await WorkloadWriter(connection).hold(MPI)
