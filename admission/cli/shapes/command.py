"""`muster shapes`: NodeShapes, generalised from nodes that are or were there."""

import sys
from typing import Annotated

import typer
import yaml

from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, manifest_reader, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.shapes import proposal
from admission.errors import ForbiddenError
from admission.kube.cache import watched_resources

app = apps.group()

EPILOG = apps.epilog(
    (
        "muster shapes propose > shapes.yaml",
        "muster shapes propose --by example.com/pool --max-count 16",
        "kubectl get nodes,resourceslices,pods -A -o yaml | muster shapes propose -",
    ),
    "Without PATH the cluster is read; a file that was saved while nodes were there does as well. Set maxCount to the"
    " limit of the autoscaler, and pricePerHour, before you apply a shape.",
    "Exit codes: 0 done, 1 the cluster does not answer, 2 no node has such a label, an object cannot be "
    "read, or a right is missing.",
)


@app.callback()
def _group() -> None:
    """NodeShapes: what nodes would be like that may still come."""


@app.command(epilog=EPILOG)
def propose(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files, folders, or - for standard input, instead of the cluster."),
    ] = None,
    *,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="LABEL", help="Labels that tell shapes apart; by default an autoscaler's."),
    ] = None,
    max_count: Annotated[
        int | None, typer.Option(min=0, max=5_000, help="maxCount of each shape; by default twice the nodes seen.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Print a NodeShape for each kind of node, with what all nodes of the kind have in common."""
    if paths:
        bodies: tuple[Json, ...] = tuple(one.body for one in manifest_reader.read(paths))
    else:
        bodies = cluster_options.query(_read, kubeconfig=kubeconfig, context=context)
    proposed = proposal.propose(bodies, by=by or (), most=max_count)
    for text in proposed.notes:
        terminal.note(text)
    sys.stdout.write("---\n".join(yaml.safe_dump(one, sort_keys=False, width=120) for one in proposed.shapes))


async def _read(cluster: Cluster) -> tuple[Json, ...]:
    """Read nodes, slices, and pods where that is allowed."""
    found: list[Json] = []
    for kind in (watched_resources.NODES, watched_resources.SLICES, watched_resources.PODS):
        try:
            listed = await cluster.list_objects(kind)
        except ForbiddenError:
            if kind is not watched_resources.PODS:
                raise
            terminal.note("you may not list pods, so what DaemonSets request is not taken off what a node has")
            continue
        found += [{**item, "kind": kind.name} for item in listed]
    return tuple(found)
