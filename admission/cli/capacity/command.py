"""`muster capacity`: how many more gangs of given shapes would start now, and what stops the next one of each."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated

import typer

from admission.api.values.decoding import Json
from admission.cli import apps, completion, config_command, manifest_reader, object_writes, terminal
from admission.cli.capacity import copies, pieces, waited as waited_shapes
from admission.cli.capacity.answer import Answer
from admission.cli.capacity.copies import MOST_PODS, Capacity, JobShape, Settings, Shape
from admission.cli.config_command import ConfigOption, SetOption
from admission.cli.ledger import options as ledger_options
from admission.cli.ledger.options import ClusterOption, DatabaseOption
from admission.cli.manifest_reader import BadInputError, Manifest
from admission.cli.submit import objects
from admission.cli.submit.objects import Submission
from admission.cli.terminal import Format
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import FixError
from admission.scheduling.fragments import Fragments
from admission.simulation import expand

app = apps.single()

ALL_START, SOME_DO_NOT = 0, 3

EPILOG = apps.epilog(
    (
        "muster capacity config/examples --shape 2x2:gpu.example.com --queue research-vision -n vision",
        "muster capacity now.yaml --shape 8x8:gpu.example.com --shape 1x1:gpu.example.com --queue research",
        "muster capacity cluster.yaml --gang train.yaml --format json",
        "muster capacity cluster.yaml --shape 1x8:gpu.example.com --queue research --pieces",
        "muster capacity cluster.yaml --waited --database postgresql://reader@db.example.com/muster",
    ),
    "Exit codes: 0 at least one gang of each shape would start, 3 of some shape none, 2 the input is wrong.",
)

_SHAPE = re.compile(r"(?P<pods>[0-9]{1,5})x(?P<devices>[0-9]{1,4}):(?P<name>[^:\s]+)")
_NAME = "muster-capacity"
"""Of the Jobs that are made for shapes."""


ShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="PODSxDEVICES:CLASS",
        help="A gang of pods with so many devices each, repeatable: 8x8:gpu.example.com.",
    ),
]
GangsOption = Annotated[
    list[str] | None, typer.Option("--gang", metavar="FILE", help="A gang from manifests with one Job, repeatable.")
]
RequestsOption = Annotated[
    list[str] | None,
    typer.Option("--request", metavar="RESOURCE=AMOUNT", help="Of each pod of a shape: cpu=4, memory=16Gi."),
]
PiecesOption = Annotated[
    bool,
    typer.Option("--pieces", help="Show where devices stand free, who could use them, and what moving would free."),
]
QueueOption = Annotated[
    str, typer.Option("--queue", "-q", help="The queue that shapes enter.", autocompletion=completion.queues)
]
MostOption = Annotated[
    int, typer.Option(min=1, max=1_000, help="How many gangs of a shape are tried, of 10,000 pods in all.")
]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Of shapes, and of objects that name none.")]
WaitedOption = Annotated[
    bool,
    typer.Option(
        "--waited", help="Gangs that waited in the last 30 days, by the books: the ten shapes that waited for longest."
    ),
]


@app.command(epilog=EPILOG)
def capacity(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders, or - for standard input.")],
    *,
    shapes: ShapesOption = None,
    gangs: GangsOption = None,
    queue: QueueOption = "",
    requests: RequestsOption = None,
    most: MostOption = copies.MOST,
    in_pieces: PiecesOption = False,
    have_waited: WaitedOption = False,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    output: Annotated[Format, typer.Option("--format", "-o", help="Tables, or one JSON object.")] = Format.TEXT,
    namespace: NamespaceOption = "default",
    profile: Annotated[Release, typer.Option(help="The Kubernetes whose kube-scheduler decides.")] = Release.V1_37,
    steps: Annotated[int, typer.Option(min=1, help="Bound of the search, per gang and question.")] = 50_000,
    config: ConfigOption = None,
    changes: SetOption = None,
) -> None:
    """Say how many more gangs of given shapes would start now, and what stops the next one. Needs no cluster.

    Reads manifests of a cluster as `muster simulate` does. Each shape is tried alone, beside all that runs and after
    all that waits in the input. Whom --pieces names as movable is not moved.
    """
    manifests = manifest_reader.read(paths)
    amounts = object_writes.amounts("--request", requests or (), "cpu=4")
    waited, others = (
        waited_shapes.shapes(ledger_options.settings(config, database, cluster)) if have_waited else ([], 0)
    )
    given = [*(_shape(text, queue, namespace, amounts) for text in shapes or ()), *map(_gang, gangs or ())]
    wanted: list[Shape] = [*given, *waited]
    if not wanted:
        raise FixError(
            "nothing is asked for: name a gang, as --shape 8x8:gpu.example.com or --gang train.yaml, or say --waited"
        )
    controller = config_command.chosen(config, {}, changes).settings.controller
    settings = Settings(
        most=most,
        namespace=namespace,
        profile=compatibility.profile(profile),
        steps=steps,
        schedulers=frozenset(controller.schedulers),
        strands_least=controller.strands_least,
    )
    _refuse_problems(manifests, settings)
    bodies = [one.body for one in manifests]
    found = asyncio.run(_measured(bodies, wanted, settings))
    fragments = _fragments(bodies, wanted, settings) if in_pieces else None
    answer = Answer(found, {one.title: one.seconds for one in waited}, others if have_waited else None, fragments)
    if output is Format.JSON:
        terminal.as_json(answer.json())
    else:
        answer.show()
    raise typer.Exit(ALL_START if all(one.starts for one in found) else SOME_DO_NOT)


async def _measured(bodies: Sequence[Json], shapes: Sequence[Shape], settings: Settings) -> list[Capacity]:
    return [await copies.measure(bodies, shape, settings) for shape in shapes]


def _fragments(bodies: Sequence[Json], shapes: Sequence[Shape], settings: Settings) -> Fragments:
    wanted = {shape.title: copies.wanted(bodies, shape, settings) for shape in shapes}
    before = expand.expand(bodies, namespace=settings.namespace, profile=settings.profile).snapshot
    return pieces.fragments(asyncio.run(copies.simulated(bodies, settings)), before, wanted, settings)


def _shape(text: str, queue: str, namespace: str, requests: dict[str, str]) -> JobShape:
    """Return the shape of `PODSxDEVICES:CLASS`. Raises FixError."""
    found = _SHAPE.fullmatch(text)
    if found is None or not int(found["pods"]) or not int(found["devices"]) or int(found["pods"]) > MOST_PODS:
        raise FixError(
            f"--shape: {text!r} is not pods x devices : class; write it as 8x8:gpu.example.com, with at most"
            f" {MOST_PODS} pods"
        )
    submission = Submission(
        name=_NAME,
        namespace=namespace,
        image="none",
        pods=int(found["pods"]),
        devices={found["name"]: int(found["devices"])},
        queue=queue,
        requests=requests,
    )
    template, job = objects.template(submission), objects.job(submission)
    shared = (template,) if template is not None else ()
    object_writes.refuse_invalid([job, *shared], namespace=namespace)
    return JobShape(title=text, job=job, shared=shared)


def _gang(path: str) -> JobShape:
    """Return the shape of the only Job in some manifests, with what stands beside it. Raises FixError."""
    bodies = [manifest.body for manifest in manifest_reader.read([path])]
    jobs = [body for body in bodies if body.get("kind") == "Job"]
    if len(jobs) != 1 or not isinstance(jobs[0].get("metadata"), dict) or not jobs[0]["metadata"].get("name"):
        raise FixError(f"--gang: {path}: it needs one Job with a name, and has {len(jobs)}; name a file for each gang")
    object_writes.refuse_invalid(bodies)
    return JobShape(title=path, job=jobs[0], shared=tuple(body for body in bodies if body is not jobs[0]))


def _refuse_problems(manifests: Sequence[Manifest], settings: Settings) -> None:
    """Raise BadInputError with what is wrong in the manifests of the cluster."""
    cluster = expand.expand([one.body for one in manifests], namespace=settings.namespace, profile=settings.profile)
    problems = [manifests[index].problem(problem) for index, error in cluster.problems for problem in error.problems]
    if problems:
        raise BadInputError(problems)
