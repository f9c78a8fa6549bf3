"""`muster submit`: creates a Job in a queue, with the template of its pods' claims, which goes with it."""

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from admission.api.kubernetes.claims import MAX_RESULTS
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, completion, object_writes, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.init import live_cluster
from admission.cli.object_writes import DryRun, DryRunOption, ObjectFormatOption
from admission.cli.submit import objects
from admission.cli.submit.objects import Submission
from admission.errors import FixError, MusterError
from admission.kube.client import paths
from admission.kube.client.connection import PatchKind

app = apps.single()

HELD = 3

EPILOG = apps.epilog(
    (
        "muster submit --image pytorch:2.9 --devices gpu.example.com=2 --pods 4 --queue q -- python train.py",
        "muster submit --image busybox:1.37 --queue q --name hello --wait -- echo hello",
        "muster submit --image busybox:1.37 --devices gpu.example.com --dry-run client -o yaml -- sleep 60 > job.yaml",
    ),
    "The pods start together, each with its own devices. Without --queue they enter the default queue of the "
    "namespace. `kubectl delete job NAME` deletes the template of the claims, too.",
    "Exit codes: 0 done, 1 the cluster does not answer, 2 a class, queue or right is missing, or it would be refused; "
    "with --wait 3 it waits still.",
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?")
"""A Job's name that leaves room for what is added to it in the names of pods and claims."""

_LONGEST_BEGINNING = 40


ImageOption = Annotated[str, typer.Option("--image", help="Image of the pods.", show_default=False)]
DevicesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--devices", metavar="CLASS=NUMBER", help="Devices of a class for each pod, repeatable: gpu.example.com=2."
    ),
]
PodsOption = Annotated[int, typer.Option("--pods", min=1, max=10_000, help="How many pods start together.")]
QueueOption = Annotated[
    str, typer.Option("--queue", "-q", help="The queue to wait in.", autocompletion=completion.queues)
]
NameOption = Annotated[str, typer.Option("--name", help="Name of the Job; by default one like the image's.")]
RuntimeOption = Annotated[
    str, typer.Option("--runtime", help="How long it runs at most, for backfill and budgets: 4h.")
]
RequestOption = Annotated[
    list[str] | None, typer.Option("--request", metavar="RESOURCE=AMOUNT", help="Of each pod: cpu=4, memory=16Gi.")
]
EnvironmentOption = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable of the container, repeatable.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until it runs, for a minute at most, and then say why not.")
]


@app.command(epilog=EPILOG)
def submit(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="After --; without it the image's own.")
    ] = None,
    *,
    image: ImageOption,
    devices: DevicesOption = None,
    pods: PodsOption = 1,
    queue: QueueOption = "",
    name: NameOption = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The Job's.")] = "default",
    priority_class: Annotated[str, typer.Option(help="A priority class of the queue.")] = "",
    runtime: RuntimeOption = "",
    requests: RequestOption = None,
    environment: EnvironmentOption = None,
    dry_run: DryRunOption = DryRun.NONE,
    output: ObjectFormatOption = None,
    wait: WaitOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Create a Job in a queue from an image, a command and the devices that it needs."""
    submission = Submission(
        name=_checked_name(name) if name else _name_like(image),
        namespace=namespace,
        image=image,
        command=tuple(command or ()),
        pods=pods,
        devices=_devices(devices or ()),
        queue=queue,
        priority_class=priority_class,
        runtime=object_writes.duration("--runtime", runtime) if runtime else "",
        requests=object_writes.amounts("--request", requests or (), "cpu=4"),
        environment=object_writes.amounts("--env", environment or (), "NAME=VALUE"),
    )
    template, job = objects.template(submission), objects.job(submission)
    bodies = [job] if template is None else [template, job]

    async def create(cluster: Cluster) -> Sequence[Json]:
        for warning in await object_writes.check(cluster, bodies, namespace=namespace):
            terminal.note(warning)
        return await _create(cluster, template, job, dry_run)

    if dry_run is DryRun.CLIENT:
        object_writes.refuse_invalid(bodies, namespace=namespace)
    else:
        bodies = [*cluster_options.query(create, kubeconfig=kubeconfig, context=context)]
    object_writes.show(bodies, output, dry_run)
    if wait and dry_run is DryRun.NONE:
        _wait(submission, kubeconfig, context)
    elif dry_run is DryRun.NONE:
        terminal.note(f"`muster why {namespace}/{submission.name}` says what it waits for")


def _wait(submission: Submission, kubeconfig: Path | None, context: str | None) -> None:
    """Wait until the Job's gang runs, and say how far it has come. Raises Exit if it waits still."""

    async def started(cluster: Cluster) -> GangReport | None:
        return await live_cluster.gang_of(cluster, submission.namespace, submission.name)

    found = cluster_options.query(started, kubeconfig=kubeconfig, context=context)
    terminal.say(_outcome(found, submission))
    if found is None or found.phase not in (Phase.RUNNING, Phase.FINISHED):
        raise typer.Exit(HELD)


async def _create(cluster: Cluster, template: Json | None, job: Json, dry_run: DryRun) -> list[Json]:
    """Create the template, the Job, and the ownership of the one by the other; without a Job no template stays."""
    if template is None:
        return [await object_writes.create(cluster, job, dry_run)]
    made = await object_writes.create(cluster, template, dry_run)
    path = paths.join(object_writes.collection(template), template["metadata"]["name"])
    try:
        created = await object_writes.create(cluster, job, dry_run)
    except MusterError:
        if dry_run is DryRun.NONE:
            await cluster.connection.delete(path, _only(made))
        raise
    if dry_run is not DryRun.NONE:
        return [made, created]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": created["metadata"]["uid"],
    }
    owned = await cluster.connection.patch(path, {"metadata": {"ownerReferences": [owner]}}, PatchKind.MERGE)
    return [owned, created]


def _only(made: Json) -> Json:
    """Return the options that delete an object, and none that has taken its name since."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": made["metadata"]["uid"]}}


def _outcome(found: GangReport | None, submission: Submission) -> str:
    if found is None:
        return f"no gang of Job {submission.namespace}/{submission.name} was seen: is Muster running (`muster doctor`)?"
    if found.hold is not None:
        return f"gang {found.key} waits: {found.hold.reason}: {found.hold.message}"
    where = f" on {terminal.nodes_of(found.plan)}" if found.plan else ""
    return f"gang {found.key} is {found.phase}{where}"


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise FixError(
            f"--name: {name!r} is no name for a Job: at most 53 lower-case letters, digits and hyphens, such as train-7"
        )
    return name


def _name_like(image: str) -> str:
    """Return a name of the image's own name and a few random characters."""
    own = image.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    beginning = re.sub(r"[^a-z0-9]+", "-", own)[:_LONGEST_BEGINNING].strip("-")
    return "-".join(filter(None, (beginning or "job", uuid.uuid4().hex[:5])))


def _devices(texts: Sequence[str]) -> dict[str, int]:
    """Return how many devices of each class a pod gets; a class alone is one device."""
    example = "gpu.example.com=2"
    listed = object_writes.amounts("--devices", (text if "=" in text else f"{text}=1" for text in texts), example)
    found: dict[str, int] = {}
    for name, count in listed.items():
        if not (count.isascii() and count.isdigit() and 1 <= len(count) <= _MOST_DIGITS and int(count)):
            raise FixError(f"--devices: {name}={count}: how many is a whole number from 1, as in {example}")
        found[name] = int(count)
    if sum(found.values()) > MAX_RESULTS:
        raise FixError(
            f"--devices: {sum(found.values())} devices are more than {MAX_RESULTS}, the most that a claim can have: ask"
            " for fewer, with more --pods"
        )
    return found


_MOST_DIGITS = 4
