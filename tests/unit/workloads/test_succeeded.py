"""How many pods a gang still needs of which a part is done: towards the end of Jobs, and after they were taken back."""

from collections.abc import Callable
from typing import Any

import pytest

from admission.api.kubernetes import jobs
from admission.api.values import names
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd

COMPLETE = [{"type": "Complete", "status": "True"}]


def a_job(name: str = "job", *, gang: str = "", size: int = 0, least: int = 0, **spec: Any) -> Manifest:
    said = {key: str(count) for key, count in ((names.GANG_SIZE, size), (names.GANG_MIN, least)) if count}
    labels = {**TEMPLATE["metadata"]["labels"], **({names.GANG: gang} if gang else {})}
    template = {"metadata": {"labels": labels, "annotations": said}, "spec": TEMPLATE["spec"]}
    whole = {"parallelism": 4, **spec, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "uid": name}, "spec": whole}


def left(herd: Herd, job: Manifest, *, alive: int, done: int = 0, **status: Any) -> None:
    """Put a Job of which some pods wait and some have succeeded."""
    (pod, *_) = standins.job_pods(herd.put(job, **status))
    for number in range(alive + done):
        meta = {**pod["metadata"], "name": f"{job['metadata']['name']}-{number}"}
        herd.put({**pod, "metadata": meta}, phase="Pending" if number < alive else "Succeeded")


def a_jobset(herd: Herd, *, jobs: int = 2, done: int = 0, **spec: Any) -> list[Manifest]:
    """Put a JobSet, and return its Jobs of four pods at a time."""
    template = {"spec": {"parallelism": 4, "completions": 4, "template": TEMPLATE, **spec}}
    entry = {"name": "a", "replicas": jobs, "template": template}
    jobset = an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "train", replicatedJobs=[entry])
    jobset["status"] = {"replicatedJobsStatus": [{"name": "a", "succeeded": done}]}
    made = standins.jobset_jobs(herd.put(jobset))
    for job in made:
        job["metadata"]["uid"] = job["metadata"]["name"]
    return made


def the_end_of_a_job_that_says_its_size(herd: Herd) -> None:
    left(herd, a_job(size=4, completions=10), alive=2, done=8, succeeded=8)


def a_job_that_says_its_size(herd: Herd) -> None:
    left(herd, a_job(size=4, completions=4), alive=2)


def a_job_without_completions(herd: Herd) -> None:
    """Its controller makes no pod any more once one has succeeded, and one was lost before."""
    left(herd, a_job(), alive=1, done=2, succeeded=2, active=1)


def a_job_without_completions_that_has_just_begun(herd: Herd) -> None:
    left(herd, a_job(), alive=1)


def the_end_of_a_named_gang(herd: Herd) -> None:
    left(herd, a_job(gang="g", size=4, completions=4), alive=1, done=3, succeeded=3)


def a_named_gang_of_which_an_index_has_failed_for_good(herd: Herd) -> None:
    left(herd, a_job(gang="g", size=4, completions=4), alive=3, failedIndexes="2")


def a_named_gang_with_fewer_than_it_has(herd: Herd) -> None:
    left(herd, a_job(gang="g", size=4, least=3, completions=4), alive=1, done=1, succeeded=1)


def a_named_gang_of_a_name_that_was_there_before(herd: Herd) -> None:
    left(herd, a_job("before", gang="g", size=4, completions=4), alive=0, done=4, succeeded=4, conditions=COMPLETE)
    left(herd, a_job("now", gang="g", size=4, completions=4), alive=4)


def a_jobset_of_which_one_job_is_done(herd: Herd) -> None:
    """The nodes of its pods are gone, and the pods with them."""
    one, two = a_jobset(herd, done=1)
    left(herd, one, alive=0, succeeded=4, conditions=COMPLETE)
    left(herd, two, alive=4)


def a_jobset_of_which_one_job_and_a_part_of_the_other_are_done(herd: Herd) -> None:
    one, two = a_jobset(herd, done=1)
    left(herd, one, alive=0, done=1, succeeded=4, conditions=COMPLETE)
    left(herd, two, alive=3, succeeded=1)


def a_jobset_of_which_one_job_is_done_and_another_is_not_made_yet(herd: Herd) -> None:
    one, two, _ = a_jobset(herd, jobs=3, done=1)
    left(herd, one, alive=0, done=1, succeeded=4, conditions=COMPLETE)
    left(herd, two, alive=4)


def a_jobset_that_has_counted_a_job_before_it_is_seen(herd: Herd) -> None:
    one, two = a_jobset(herd, done=1)
    left(herd, one, alive=1, done=3, succeeded=3)
    left(herd, two, alive=4)


def a_jobset_whose_jobs_make_pods_one_after_the_other(herd: Herd) -> None:
    one, two = a_jobset(herd, done=1, completions=10)
    left(herd, one, alive=0, done=10, succeeded=10, conditions=COMPLETE)
    left(herd, two, alive=4, done=3, succeeded=3)


def a_jobset_of_which_an_index_has_failed_for_good(herd: Herd) -> None:
    one, two = a_jobset(herd)
    left(herd, one, alive=4)
    left(herd, two, alive=3, failedIndexes="1")


def a_training_job_of_which_a_pod_ends_well_as_it_is_deleted(herd: Herd) -> None:
    """Its operator makes another one, as when it was suspended and goes on."""
    of_role = {"Worker": {"replicas": 4, "template": TEMPLATE}}
    job = herd.put(an_object("kubeflow.org/v1", "PyTorchJob", "train", pytorchReplicaSpecs=of_role))
    removed, done, *others = standins.replica_pods(job, "pytorchReplicaSpecs")
    removed["metadata"]["deletionTimestamp"] = "2026-11-21T12:30:00Z"
    herd.all([removed, done], phase="Succeeded")
    herd.all(others)


NEEDED: dict[Callable[[Herd], None], int] = {
    the_end_of_a_job_that_says_its_size: 2,
    a_job_that_says_its_size: 4,
    a_job_without_completions: 1,
    a_job_without_completions_that_has_just_begun: 4,
    the_end_of_a_named_gang: 1,
    a_named_gang_of_which_an_index_has_failed_for_good: 3,
    a_named_gang_with_fewer_than_it_has: 3,
    a_named_gang_of_a_name_that_was_there_before: 4,
    a_jobset_of_which_one_job_is_done: 4,
    a_jobset_of_which_one_job_and_a_part_of_the_other_are_done: 3,
    a_jobset_of_which_one_job_is_done_and_another_is_not_made_yet: 8,
    a_jobset_that_has_counted_a_job_before_it_is_seen: 5,
    a_jobset_whose_jobs_make_pods_one_after_the_other: 4,
    a_jobset_of_which_an_index_has_failed_for_good: 7,
    a_training_job_of_which_a_pod_ends_well_as_it_is_deleted: 3,
}


@pytest.mark.parametrize(("put", "needed"), NEEDED.items(), ids=[put.__name__ for put in NEEDED])
def test_succeeded_pods_are_not_waited_for(put: Callable[[Herd], None], needed: int) -> None:
    herd = Herd()
    put(herd)

    assert herd.gang.still_needed == needed


def test_a_job_of_which_more_have_succeeded_than_are_wanted_makes_no_more_pods() -> None:
    """An elastic one that was scaled down, before its controller has written the end."""
    job = jobs.decode(
        {
            "metadata": {"name": "train"},
            "spec": {"completions": 5, "parallelism": 3, "template": {"spec": {"containers": []}}},
            "status": {"succeeded": 10},
        }
    )

    assert job.remaining_pods == 0
