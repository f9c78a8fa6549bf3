"""The queue in a workload's own labels is that of its pods, whoever makes them; a wrong one is refused at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests import standins
from tests.controlplane import ApiError, ControlPlane
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, herds
from tests.e2e.herds import Herd
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP
from tests.standins import an_object

JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
SECOND = "second"
KUEUE = "kueue.x-k8s.io/queue-name"

pytestmark = pytest.mark.timeout(300)


muster = fixtures.muster(JOBSET)


@pytest.fixture(scope="module")
def herd(control_plane: ControlPlane, muster: Muster) -> Iterator[Herd]:
    """A team with a default queue, and a second one that only labels name: by its name, or by Kueue's label `lq`."""
    with herds.of(control_plane, muster, "labels", nodes=1, devices=8) as herd:
        client = herd.lab.client
        spec = client.get(f"{GROUP}/queues/{herd.lab.team.queue}")["spec"] | {"default": False, "aliases": ["lq"]}
        queue = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": SECOND}, "spec": spec}
        client.apply(f"{GROUP}/queues/{SECOND}", queue)
        eventually(lambda: is_labelled(herd), what="the second queue is known")
        yield herd
        herd.clear()
        client.delete(f"{GROUP}/queues/{SECOND}")


def is_labelled(herd: Herd) -> bool:
    """Whether both webhooks know the queue, and label templates."""
    try:
        answer = herd.lab.client.create(f"{herd.lab.team.jobs}?dryRun=All", a_job(herd, "dry"))
    except ApiError:
        return False
    return queue_of(answer["spec"]["template"]) == SECOND


def labelled(obj: Manifest, queue: str, key: str = names.QUEUE) -> Manifest:
    """Name a queue. The API server gives a Job without any label those of its template (`SetDefaults_Job`)."""
    obj["metadata"]["labels"] = {"app": "herd", key: queue}
    return obj


def a_job(herd: Herd, name: str, queue: str = SECOND, *, key: str = names.QUEUE, **labels: str) -> Manifest:
    """A Job of two pods. labels: of its template."""
    spec: dict[str, Any] = {"parallelism": 2, "completions": 2, "template": herd.template(**labels)}
    return labelled(an_object("batch/v1", "Job", name, **spec), queue, key)


def a_jobset(herd: Herd, name: str) -> Manifest:
    entries = [
        {"name": role, "replicas": 1, "template": {"spec": {"parallelism": 1, "template": herd.template()}}}
        for role in ("driver", "workers")
    ]
    return an_object(*JOBSET, name, replicatedJobs=entries)


def a_deployment(herd: Herd, name: str) -> Manifest:
    selector = {"matchLabels": {"app": name}}
    template = herd.template("Always", app=name)
    return an_object("apps/v1", "Deployment", name, replicas=2, selector=selector, template=template)


def is_scaled(deployment: Manifest) -> bool:
    """Whether as many pods are there as its latest spec asks for."""
    status = deployment.get("status", {})
    is_observed = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(is_observed and status.get("replicas") == deployment["spec"]["replicas"])


def queue_of(obj: Any) -> str:
    return str(obj["metadata"].get("labels", {}).get(names.QUEUE, ""))


def refused(herd: Herd, obj: Manifest) -> str:
    with pytest.raises(ApiError) as caught:
        herd.put(obj)
    return str(caught.value)


@pytest.mark.parametrize(("key", "queue"), [(names.QUEUE, SECOND), (KUEUE, "lq")], ids=["Muster's", "Kueue's"])
def test_a_jobs_pods_enter_the_queue_of_the_jobs_label_and_not_the_default(herd: Herd, key: str, queue: str) -> None:
    job = herd.put(a_job(herd, "train", queue, key=key))

    gang = herd.wait_running(*herd.pods_of(job, 2))
    assert gang["spec"]["queue"] == SECOND
    assert {queue_of(pod) for pod in herd.pods.values()} == {SECOND}
    herd.clear(job)


def test_every_part_of_a_jobset_enters_the_queue_of_its_label(herd: Herd) -> None:
    jobset = herd.put(labelled(a_jobset(herd, "js"), SECOND))
    jobs = herd.all(standins.jobset_jobs(jobset))

    gang = herd.wait_running(*(name for job in jobs for name in herd.pods_of(job, 1)))
    assert gang["spec"]["queue"] == SECOND
    assert gang["spec"]["workload"]["kind"] == "JobSet"
    herd.clear(*jobs, jobset)


def test_the_label_of_one_job_of_a_jobset_reaches_its_pods_by_way_of_the_job(herd: Herd) -> None:
    manifest = a_jobset(herd, "part")
    for entry in manifest["spec"]["replicatedJobs"]:
        entry["template"]["metadata"] = {"labels": {names.QUEUE: SECOND}}
    jobset = herd.put(manifest)
    made = standins.jobset_jobs(jobset)
    for job in made:
        job["metadata"]["labels"][names.QUEUE] = SECOND
    jobs = herd.all(made)

    gang = herd.wait_running(*(name for job in jobs for name in herd.pods_of(job, 1)))
    assert gang["spec"]["queue"] == SECOND
    herd.clear(*jobs, jobset)


def test_a_deployment_keeps_its_queue_when_it_is_replaced_without_it(herd: Herd) -> None:
    manifest = labelled(a_deployment(herd, "serve"), SECOND)
    deployment = herd.put(manifest)
    assert queue_of(deployment["spec"]["template"]) == SECOND
    path = f"{herd.path(manifest)}/serve"

    client = herd.lab.client

    def of_template(queue: str | None) -> Manifest:
        return {"spec": {"template": {"metadata": {"labels": {names.QUEUE: queue}}}}}

    assert "QueueConflict" in herd.refusal(path, of_template(herd.lab.team.queue))
    assert queue_of(client.merge_patch(path, of_template(None))["spec"]["template"]) == SECOND
    client.merge_patch(path, {"spec": {"replicas": 1}})

    eventually(lambda: is_scaled(client.get(path)), what="its controllers made the second pod and removed it")
    (pod,) = eventually(
        lambda: pods if len(pods := herd.pods) == 1 else None, what="one pod of the Deployment"
    ).values()
    assert queue_of(pod) == SECOND
    assert herd.wait_running(pod["metadata"]["name"])["spec"]["queue"] == SECOND
    herd.clear(deployment)


def test_a_wrong_queue_is_refused_where_it_is_named(herd: Herd) -> None:
    """A misspelt name does not become the default queue."""
    assert "UnknownQueue: there is no queue secnd; nearest by name: second" in refused(herd, a_job(herd, "x", "secnd"))
    assert "UnknownQueue" in refused(herd, labelled(a_jobset(herd, "x"), "secnd"))
    assert "UnknownQueue" in refused(herd, labelled(a_deployment(herd, "x"), "secnd"))
    assert "UnknownQueue" in refused(herd, a_job(herd, "x", "theirs", key=KUEUE))
    said = refused(herd, a_job(herd, "x", **{names.QUEUE: herd.lab.team.queue}))
    assert "QueueConflict: spec.template.metadata.labels names queue queue-labels in label muster.dev/queue and" in said
    assert "metadata.labels names queue second in label muster.dev/queue" in said
    template = a_job(herd, "x", **{names.QUEUE: "secnd"})
    template["metadata"]["labels"] = {"app": "herd"}
    assert "UnknownQueue: spec.template.metadata.labels: there is no queue secnd" in refused(herd, template)


def test_the_queue_of_a_job_is_fixed_like_that_of_its_pods(herd: Herd) -> None:
    job = herd.put(a_job(herd, "fixed"))
    path = f"{herd.path(job)}/fixed"

    for queue in (herd.lab.team.queue, None):
        said = herd.refusal(path, {"metadata": {"labels": {names.QUEUE: queue}}})
        assert "GateTampering" in said
        assert "it is fixed when the workload is created" in said
    assert not herd.refusal(path, {"metadata": {"labels": {"app": "x"}}})
    herd.clear(job)


def test_a_workload_in_a_namespace_of_no_queue_is_refused_its_queue(herd: Herd) -> None:
    client = herd.lab.client
    client.create("/api/v1/namespaces", {"metadata": {"name": "unqueued"}})
    try:
        path = "/apis/batch/v1/namespaces/unqueued/jobs"
        with pytest.raises(ApiError, match="QueueNotOpen"):
            client.create(path, a_job(herd, "x"))
        with pytest.raises(ApiError, match="UnknownQueue"):
            client.create(path, a_job(herd, "x", "secnd"))
        plain = a_job(herd, "x")
        del plain["metadata"]["labels"]
        client.create(f"{path}?dryRun=All", plain)
    finally:
        client.delete("/api/v1/namespaces/unqueued")


def test_while_muster_is_down_a_workload_that_names_a_queue_waits_and_others_do_not(herd: Herd, muster: Muster) -> None:
    """Nobody would pass the name on to its pods."""
    plain = a_job(herd, "plain")
    plain["metadata"]["labels"] = {"app": "herd"}
    muster.end()

    assert "failed calling webhook" in refused(herd, a_job(herd, "x"))
    herd.lab.client.create(f"{herd.path(plain)}?dryRun=All", plain)

    muster.start()
    eventually(lambda: is_labelled(herd), what="templates are labelled again")
