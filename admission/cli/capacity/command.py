"""`muster capacity`: how many more gangs of given shapes would start now, and what stops the next one of each."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from admission.api.values.decoding import Json
from admission.cli import apps, completion, config_command, manifest_reader, object_writes, terminal
from admission.cli.capacity import copies
from admission.cli.capacity.copies import MOST_PODS, Capacity, Settings, Shape
from admission.cli.capacity.pieces import Pieces
from admission.cli.config_command import ConfigOption, SetOption
from admission.cli.manifest_reader import BadInputError, Manifest
from admission.cli.submit import objects
from admission.cli.submit.objects import Submission
from admission.cli.terminal import Format, Number
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import FixError
from admission.simulation import expand

app = apps.single()

ALL_START, SOME_DO_NOT = 0, 3

EPILOG = apps.epilog(
    (
        "muster capacity config/examples --shape 2x2:gpu.example.com --queue research-vision -n vision",
        "muster capacity now.yaml --shape 8x8:gpu.example.com --shape 1x1:gpu.example.com --queue research",
        "muster capacity cluster.yaml --gang train.yaml --format json",
        "muster capacity cluster.yaml --shape 1x8:gpu.example.com --queue research --pieces",
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


@app.command(epilog=EPILOG)
def capacity(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders, or - for standard input.")],
    *,
    shapes: ShapesOption = None,
    gangs: GangsOption = None,
    queue: Annotated[
        str, typer.Option("--queue", "-q", help="The queue that shapes enter.", autocompletion=completion.queues)
    ] = "",
    requests: RequestsOption = None,
    most: Annotated[
        int, typer.Option(min=1, max=1_000, help="How many gangs of a shape are tried, of 10,000 pods in all.")
    ] = copies.MOST,
    in_pieces: PiecesOption = False,
    output: Annotated[Format, typer.Option("--format", "-o", help="Tables, or one JSON object.")] = Format.TEXT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Of shapes, and of objects that name none.")
    ] = "default",
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
    wanted = [*(_shape(text, queue, namespace, amounts) for text in shapes or ()), *map(_gang, gangs or ())]
    if not wanted:
        raise FixError("nothing is asked for: name a gang, as --shape 8x8:gpu.example.com or --gang train.yaml")
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
    pieces = _pieces(bodies, wanted, settings) if in_pieces else None
    if output is Format.JSON:
        more = _pieces_json(pieces) if pieces is not None else {}
        terminal.as_json({"shapes": [_json(one) for one in found], **more})
    else:
        headings = ("shape", Number("starts"), "what stops the next one", "instead of")
        terminal.table("Capacity", headings, [_row(one) for one in found])
        if pieces is not None:
            _show_pieces(pieces, [one.title for one in wanted])
    raise typer.Exit(ALL_START if all(one.starts for one in found) else SOME_DO_NOT)


async def _measured(bodies: Sequence[Json], shapes: Sequence[Shape], settings: Settings) -> list[Capacity]:
    return [await copies.measure(bodies, shape, settings) for shape in shapes]


def _pieces(bodies: Sequence[Json], shapes: Sequence[Shape], settings: Settings) -> Pieces:
    demands = {shape.title: copies.demands(bodies, shape, settings) for shape in shapes}
    before = expand.expand(bodies, namespace=settings.namespace, profile=settings.profile).snapshot
    return Pieces(asyncio.run(copies.simulated(bodies, settings)), before, demands, settings)


def _pieces_json(pieces: Pieces) -> dict[str, Any]:
    return {
        "free": [
            {"node": one.node, "driver": one.driver, "free": one.free, "devices": one.total, "usable": dict(one.usable)}
            for one in pieces.free()
        ],
        "moves": [
            {
                "shape": one.shape,
                "gang": one.gang,
                "devices": one.devices,
                "from": [*one.source],
                "to": [*one.target],
                "starts": one.starts,
            }
            for one in pieces.moves()
        ],
    }


def _show_pieces(pieces: Pieces, shapes: Sequence[str]) -> None:
    rows = [
        (one.node, one.driver, f"{one.free} of {one.total}", *(one.usable[shape] for shape in shapes))
        for one in pieces.free()
    ]
    headings = ("node", "driver", "free", *(Number(f"for {shape}") for shape in shapes))
    terminal.table("Free devices", headings, rows, empty="no device is free")
    moves = [
        (one.gang, one.devices, ", ".join(one.source), ", ".join(one.target), f"{one.starts} of {one.shape}")
        for one in pieces.moves()
    ]
    columns = ("gang", Number("devices"), "from", "to", "then start")
    terminal.table("If one gang were moved", columns, moves, empty="moving no single gang makes room for more")


def _shape(text: str, queue: str, namespace: str, requests: dict[str, str]) -> Shape:
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
    return Shape(title=text, job=job, shared=shared)


def _gang(path: str) -> Shape:
    """Return the shape of the only Job in some manifests, with what stands beside it. Raises FixError."""
    bodies = [manifest.body for manifest in manifest_reader.read([path])]
    jobs = [body for body in bodies if body.get("kind") == "Job"]
    if len(jobs) != 1 or not isinstance(jobs[0].get("metadata"), dict) or not jobs[0]["metadata"].get("name"):
        raise FixError(f"--gang: {path}: it needs one Job with a name, and has {len(jobs)}; name a file for each gang")
    object_writes.refuse_invalid(bodies)
    return Shape(title=path, job=jobs[0], shared=tuple(body for body in bodies if body is not jobs[0]))


def _refuse_problems(manifests: Sequence[Manifest], settings: Settings) -> None:
    """Raise BadInputError with what is wrong in the manifests of the cluster."""
    cluster = expand.expand([one.body for one in manifests], namespace=settings.namespace, profile=settings.profile)
    problems = [manifests[index].problem(problem) for index, error in cluster.problems for problem in error.problems]
    if problems:
        raise BadInputError(problems)


def _json(one: Capacity) -> dict[str, Any]:
    return {
        "shape": one.shape,
        "starts": one.starts,
        "atLeast": one.is_bound,
        "reason": one.reason or None,
        "message": one.message,
        "details": dict(one.details),
        "insteadOf": [*one.instead_of],
    }


def _row(one: Capacity) -> tuple[str, ...]:
    starts = f"{one.starts} or more" if one.is_bound else f"{one.starts}"
    return one.shape, starts, f"{one.reason}: {one.message}" if one.reason else "", ", ".join(one.instead_of)
