"""Who made it, as a real API server authenticates them: in the pods, in the books, and whatever authors write."""

from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, intruders, teams
from tests.e2e.labs import Lab, plain
from tests.e2e.musters import Muster

FORGED = {names.USER: "mallory"}
TEMPLATE = ("spec", "template", "metadata")
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
CRONJOB_CONTROLLER = "system:serviceaccount:kube-system:cronjob-controller"


muster = fixtures.muster(scope="function")


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    """A team with two GPUs, in whose namespace alice and bob may do what they like."""
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver="users.test") as lab:
        lab.device_class()
        lab.meter("gpus", count={})
        lab.node("users", plain(2))
        lab.found()
        people = [{"kind": "User", "name": name} for name in intruders.PEOPLE]
        intruders.let_in(control_plane, namespace, people)
        yield lab


def as_user(lab: Lab, name: str) -> Client:
    return lab.control_plane.client(name)


def job(lab: Lab, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    """A Job of one pod with one GPU."""
    lab.namespace.create(workloads.claim_template(name, workloads.device_request(device_class=lab.driver)))
    made = teams.job(name, pods=1, template=name, annotations=annotations or {})
    made["spec"].update(spec)
    return made


def said(thing: Any, *way: str) -> str | None:
    for part in (*way, "annotations"):
        thing = thing.get(part, {})
    user: str | None = thing.get(names.USER)
    return user


def booked(lab: Lab, name: str) -> dict[str, set[str]]:
    """Return under whom the gang of a Job is booked, by kind of entry."""
    return {kind: {row["user"] for row in lab.entries(name, kind)} for kind in ("reserve", "settle", "release")}


def test_a_job_is_booked_under_who_made_it_whatever_is_written_there(lab: Lab) -> None:
    made = as_user(lab, "alice").create(lab.team.jobs, job(lab, "train", annotations=FORGED))
    assert said(made, *TEMPLATE) == "alice"

    lab.wait_running("train", 1)
    (pod,) = lab.team.pods("train")
    assert said(pod, "metadata") == "alice"
    path = f"{lab.namespace.pods}/{pod['metadata']['name']}"
    for change in ({names.USER: "bob"}, {names.USER: None}):
        with pytest.raises(ApiError, match="GateTampering"):
            as_user(lab, "bob").merge_patch(path, {"metadata": {"annotations": change}})

    lab.end("train")
    assert booked(lab, "train") == {"reserve": {"alice"}, "settle": {"alice"}, "release": {"alice"}}


def test_a_job_that_is_changed_while_it_is_suspended_stays_its_makers(lab: Lab) -> None:
    as_user(lab, "alice").create(lab.team.jobs, job(lab, "train", suspend=True))
    path = f"{lab.team.jobs}/train"

    for annotations in (FORGED, {names.USER: None}):
        change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        assert said(as_user(lab, "bob").merge_patch(path, change), *TEMPLATE) == "alice"
    as_user(lab, "bob").merge_patch(path, {"spec": {"suspend": False}})

    lab.wait_running("train", 1)
    assert {said(pod, "metadata") for pod in lab.team.pods("train")} == {"alice"}
    lab.end("train")


def test_nobody_makes_a_pod_in_the_name_of_somebody_elses_job(lab: Lab) -> None:
    as_user(lab, "alice").create(lab.team.jobs, job(lab, "train", suspend=True))
    owner = lab.client.get(f"{lab.team.jobs}/train")["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner["uid"]}
    body = workloads.pod("own")
    body["metadata"].update({"annotations": {names.USER: "alice"}, "ownerReferences": [reference]})

    made = as_user(lab, "bob").create(f"{lab.namespace.pods}?dryRun=All", body)
    assert said(made, "metadata") == "bob"

    reference["controller"] = True
    with pytest.raises(ApiError, match="only the Job controller makes pods of Jobs"):
        as_user(lab, "bob").create(f"{lab.namespace.pods}?dryRun=All", body)


def test_jobs_of_a_cronjob_are_their_controllers(lab: Lab) -> None:
    made = job(lab, "nightly", annotations=FORGED)
    cron = {"schedule": "* * * * *", "suspend": True, "jobTemplate": {"spec": made["spec"]}}
    path = f"/apis/batch/v1/namespaces/{lab.namespace.name}"
    as_user(lab, "alice").create(f"{path}/cronjobs", {"metadata": {"name": "nightly"}, "spec": cron})
    # A schedule takes up to a minute; this is what its controller does then.
    command = ["create", "job", "by-hand", "--from=cronjob/nightly", "-n", lab.namespace.name]
    lab.control_plane.kubectl(*command, "--as", CRONJOB_CONTROLLER, "--as-group", "system:masters")

    assert said(lab.client.get(f"{path}/jobs/by-hand"), *TEMPLATE) == CRONJOB_CONTROLLER


def test_while_muster_is_down_only_jobs_that_name_their_maker_themselves_are_refused(lab: Lab, muster: Muster) -> None:
    alice = as_user(lab, "alice")
    forged, honest = job(lab, "forged", annotations=FORGED), job(lab, "honest", suspend=True)
    muster.end(hard=True)

    with pytest.raises(ApiError, match="failed calling webhook"):
        alice.create(lab.team.jobs, forged)
    assert said(alice.create(lab.team.jobs, honest), *TEMPLATE) is None
    with pytest.raises(ApiError, match="failed calling webhook"):
        alice.merge_patch(f"{lab.team.jobs}/honest", {"spec": {"template": {"metadata": {"annotations": FORGED}}}})
    alice.merge_patch(f"{lab.team.jobs}/honest", {"spec": {"suspend": False}})
    muster.start()

    lab.team.wait_running("honest", 1)
    eventually(lambda: booked(lab, "honest")["settle"] == {JOB_CONTROLLER}, what="it is booked under its controller")
    lab.end("honest")
