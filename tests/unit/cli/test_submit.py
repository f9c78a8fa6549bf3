"""`muster submit`: what is created, who owns it, and what is said where it would be refused."""

import asyncio
import re
from typing import Any, cast

import pytest
import yaml

from admission.api.values.decoding import Json
from admission.cli import object_writes
from admission.cli.cluster_options import Cluster
from admission.cli.object_writes import DryRun
from admission.cli.submit import command, objects
from admission.cli.submit.objects import Submission
from admission.errors import ConflictError, FixError, ForbiddenError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client.connection import PatchKind, Request
from tests.unit.cli.conftest import Muster

METER = {"unit": "gpu", "sources": [{"deviceClasses": ["gpu.example.com"], "count": {}}]}
OPEN = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "quotas": [{"meter": "gpus", "nominal": "4"}]}


def named(name: str, spec: Json | None = None, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels}, "spec": spec or {}}


class Served:
    """A cluster with a class, a meter, and queues. It keeps what is created."""

    def __init__(self, *forbidden: Kind, refuses: str = "") -> None:
        self.connection = self
        self.forbidden, self.refuses = forbidden, refuses
        self.asked: list[tuple[str, str, Any]] = []
        self.objects = {
            watched_resources.QUEUES: [named("research", OPEN), named("search", {"namespaceSelector": {}})],
            watched_resources.NAMESPACES: [named("ours", team="a"), named("theirs", team="b")],
            watched_resources.METERS: [named("gpus", METER)],
            watched_resources.CLASSES: [named("gpu.example.com"), named("nic.example.com")],
        }

    async def list_objects(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Json]:
        assert namespace + labels == ""
        if kind in self.forbidden:
            raise ForbiddenError(f"you may not list {kind}")
        return self.objects.get(kind, [])

    async def get_object(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        assert not namespace
        return next((one for one in self.objects[kind] if one["metadata"]["name"] == name), None)

    async def version(self) -> tuple[int, int]:
        return 1, 37

    async def send(self, request: Request) -> Json:
        return await self._write(request.method, request.path, request.body, dry=request.params.get("dryRun") == "All")

    async def patch(self, path: str, body: Json, kind: str) -> Json:
        assert kind == PatchKind.MERGE
        return await self._write("PATCH", path, body)

    async def delete(self, path: str, body: Json) -> Json:
        return await self._write("DELETE", path, body)

    async def _write(self, method: str, path: str, body: Json, *, dry: bool = False) -> Json:
        kind = path.rpartition("/")[2]
        if self.refuses == kind:
            raise ConflictError("there is one")
        self.asked.append((f"{method} {path}{'?dryRun' if dry else ''}", kind, body))
        return {**body, "metadata": {**body.get("metadata", {}), "uid": f"uid-{kind}"}}


def checked(cluster: Served, **fields: Any) -> list[str]:
    one = Submission(
        **{"name": "train", "namespace": "ours", "image": "i", "devices": {"gpu.example.com": 2}, **fields}
    )
    template = objects.template(one)
    bodies = [*([template] if template is not None else []), objects.job(one)]
    return asyncio.run(object_writes.check(cast("Cluster", cluster), bodies, namespace=one.namespace))


def test_what_may_be_submitted_is_submitted_without_a_word() -> None:
    assert checked(Served(), queue="research") == []
    assert checked(Served(watched_resources.NAMESPACES), queue="research") == [], "its own namespace may be read"


def test_who_may_not_read_queues_is_judged_by_the_webhook_alone() -> None:
    [told] = checked(Served(watched_resources.QUEUES), queue="reserch")

    assert told == "you may not list queues.muster.dev; so only the webhook judges it"


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a queue that does not exist": ({"queue": "reserch"}, ("reserch", "research", "search")),
    "a queue that is not open": ({"queue": "research", "namespace": "theirs"}, ("queue research", "team")),
    "a class that does not exist": (
        {"queue": "research", "devices": {"gpus.example.com": 1}},
        ("gpus.example.com", "gpu.example.com"),
    ),
    "more than the queue has": ({"queue": "research", "devices": {"gpu.example.com": 5}}, ("5 gpus", "4")),
}


@pytest.mark.parametrize(("fields", "words"), WRONG.values(), ids=WRONG)
def test_what_would_be_refused_is_refused_before_it_is_sent(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(FixError) as refused:
        checked(Served(), **fields)

    assert not [word for word in words if word not in str(refused.value)], str(refused.value)


ONE = Submission(name="train", namespace="ours", image="i", devices={"gpu.example.com": 2}, queue="research")


def created(cluster: Served, dry_run: DryRun) -> list[Json]:
    return asyncio.run(command._create(cast("Cluster", cluster), objects.template(ONE), objects.job(ONE), dry_run))


TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/ours/resourceclaimtemplates"
JOBS = "/apis/batch/v1/namespaces/ours/jobs"


def test_the_template_is_owned_by_the_job_so_that_it_goes_with_it() -> None:
    cluster = Served()

    template, job = created(cluster, DryRun.NONE)

    assert [call for call, _, _ in cluster.asked] == [f"POST {TEMPLATES}", f"POST {JOBS}", f"PATCH {TEMPLATES}/train"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-jobs"}
    assert template["metadata"]["ownerReferences"] == [owner]
    assert job["metadata"]["name"] == "train"


def test_a_dry_run_by_the_server_stores_nothing() -> None:
    cluster = Served()

    created(cluster, DryRun.SERVER)

    assert [call for call, _, _ in cluster.asked] == [f"POST {TEMPLATES}?dryRun", f"POST {JOBS}?dryRun"]


def test_without_the_job_no_template_stays() -> None:
    cluster = Served(refuses="jobs")

    with pytest.raises(FixError, match="there is a Job ours/train already; nothing was changed"):
        created(cluster, DryRun.NONE)

    call, _, options = cluster.asked[-1]
    assert (call, options["preconditions"]) == (f"DELETE {TEMPLATES}/train", {"uid": "uid-resourceclaimtemplates"})


LINE = (
    *(
        "submit",
        "--image",
        "example.com/ml/Train_It:2",
        "--devices",
        "gpu.example.com=2",
        "--devices",
        "nic.example.com",
    ),
    *("--pods", "4", "-q", "research", "-n", "ours", "--priority-class", "urgent", "--runtime", "4h"),
    *("--request", "cpu=4", "--env", "A=b=c", "--dry-run", "client"),
)


def test_the_objects_are_printed_without_a_cluster(muster: Muster) -> None:
    done = muster(*LINE, "-o", "yaml", "--", "python", "train.py", "--lr", "3")

    template, job = yaml.safe_load_all(done.stdout)
    name = job["metadata"]["name"]
    assert re.fullmatch(r"train-it-[0-9a-f]{5}", name)
    assert template["metadata"] == {"name": name, "namespace": "ours"}
    requests = template["spec"]["spec"]["devices"]["requests"]
    assert [(one["exactly"]["deviceClassName"], one["exactly"]["count"]) for one in requests] == [
        ("gpu.example.com", 2),
        ("nic.example.com", 1),
    ]
    labels = {"muster.dev/queue": "research", "muster.dev/priority-class": "urgent"}
    assert job["metadata"]["labels"] == labels
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (4, 4)
    assert job["spec"]["template"] == {
        "metadata": {"labels": labels, "annotations": {"muster.dev/runtime": "4h"}},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": name}],
            "containers": [
                {
                    "name": "main",
                    "image": "example.com/ml/Train_It:2",
                    "command": ["python", "train.py", "--lr", "3"],
                    "env": [{"name": "A", "value": "b=c"}],
                    "resources": {"requests": {"cpu": "4"}, "claims": [{"name": "devices"}]},
                }
            ],
        },
    }
    assert "&id" not in done.stdout, "kubectl reads aliases, people do not"


def test_names_are_printed_as_kubectl_prints_them(muster: Muster) -> None:
    line = ("submit", "--image", "i", "--devices", "c", "--name", "train", "--dry-run", "client")

    assert muster(*line).stdout.splitlines() == [
        "resourceclaimtemplate.resource.k8s.io/train created (client dry run)",
        "job.batch/train created (client dry run)",
    ]
    assert muster(*line, "-o", "name").stdout.splitlines() == [
        "resourceclaimtemplate.resource.k8s.io/train",
        "job.batch/train",
    ]


BAD = {
    "no image": ("--devices c", "Missing option '--image'"),
    "no class": ("--image i --devices =2", "--devices: '=2' is not of the form gpu.example.com=2"),
    "no number": ("--image i --devices c=two", "--devices: c=two: how many is a whole number from 1, as in gpu"),
    "none at all": ("--image i --devices c=0", "--devices: c=0: how many is a whole number from 1, as in gpu"),
    "a class twice": ("--image i --devices c --devices c=2", "--devices: c is given twice"),
    "no name": ("--image i --name Train_1", "--name: 'Train_1' is no name for a Job: at most 53 lower-case letters"),
    "no variable": ("--image i --env A", "--env: 'A' is not of the form NAME=VALUE"),
    "more than a claim has": (
        "--image i --devices c=33",
        "--devices: 33 devices are more than 32, the most that a claim",
    ),
    "no time": ("--image i --runtime 4x", "--runtime: '4x' is not a duration"),
    "no class's name": (
        "--image i --devices Bad_Class --dry-run client",
        "deviceClassName: 'Bad_Class' is not a DNS subdomain",
    ),
    "no quantity": (
        "--image i --request cpu=abc --dry-run client",
        "spec.template.spec.containers[0].resources.requests[cpu]: quantities must match",
    ),
    "no pods": ("--image i --pods 0", "'--pods': the value has to be greater than or equal to 1"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_options_of_submit_are_told_by_name(muster: Muster, words: str, message: str) -> None:
    done = muster("submit", *words.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
