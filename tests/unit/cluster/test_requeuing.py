"""Jobs that are suspended to take their pods back: what is sent."""

from admission.api import names, workloads
from admission.api.workloads import Job
from admission.cluster.connecting import Connection
from admission.cluster.requeuing import JobWriter
from tests.unit.cluster.fake_api import FakeApi, status

PATH = "/apis/batch/v1/namespaces/team/jobs/train"


def a_job() -> Job:
    return workloads.decode({"metadata": {"name": "train", "namespace": "team", "uid": "u1"}, "spec": {}})


async def test_a_job_is_suspended_with_the_mark_in_one_write_that_names_its_uid(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("PATCH", PATH, 200, {"kind": "Job"})

    await JobWriter(connection).suspend(a_job())

    asked = api.last("PATCH", PATH)
    assert asked.content == "application/merge-patch+json"
    assert asked.body == {
        "metadata": {"uid": "u1", "annotations": {names.REQUEUED: "true"}},
        "spec": {"suspend": True},
    }


async def test_a_job_is_resumed_and_the_mark_taken_away(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 200, {"kind": "Job"})

    await JobWriter(connection).resume(a_job())

    assert api.last("PATCH", PATH).body == {
        "metadata": {"uid": "u1", "annotations": {names.REQUEUED: None}},
        "spec": {"suspend": False},
    }


async def test_a_job_that_is_gone_need_not_be_resumed(api: FakeApi, connection: Connection) -> None:
    api.answer("PATCH", PATH, 404, status(404, "NotFound", "gone"))

    await JobWriter(connection).resume(a_job())

    assert api.last("PATCH", PATH).body["spec"] == {"suspend": False}
