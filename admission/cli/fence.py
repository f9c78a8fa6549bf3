"""`muster fence`: the fences that keep kube-scheduler off devices, and their removal without a running Muster."""

from typing import Annotated

import typer

from admission.cli import apps, cluster_options, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.terminal import Format
from admission.kube import fence_controller
from admission.kube.fence_controller import ClusterFences

app = apps.group()

FormatOption = Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")]

EXITS = "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told, or it refuses."

LISTING = apps.epilog(("muster fence list",), EXITS)

LIFTING = apps.epilog(
    ("muster fence lift", "muster fence lift gpu.example.com"),
    "A fence outlives the Muster that made it, and then nobody gets the devices: lift all fences when you take Muster "
    "away. A controller that runs with the setting `fence` puts its fences up again: change the setting first.",
    EXITS,
)


@app.callback()
def _group() -> None:
    """Fences: devices that kube-scheduler leaves to Muster."""


@app.command("list", epilog=LISTING)
def listed(
    *, output: FormatOption = Format.TEXT, kubeconfig: KubeconfigOption = None, context: ContextOption = None
) -> None:
    """Show the fences that stand, and the policies that make them hold."""

    async def fetch(cluster: Cluster) -> ClusterFences:
        return await fence_controller.cluster_fences(cluster.connection)

    found = cluster_options.query(fetch, kubeconfig=kubeconfig, context=context)
    if output is Format.JSON:
        fences = [{"driver": driver, "since": f"{since:%Y-%m-%dT%H:%M:%SZ}"} for driver, since in found.fences]
        terminal.as_json({"fences": fences, "policies": list(found.policies)})
        return
    terminal.table(
        "Fences", ("driver", "since"), [(driver, f"{since:%Y-%m-%d %H:%M:%SZ}") for driver, since in found.fences]
    )
    terminal.table("Policies", ("policy",), [(name,) for name in found.policies])


@app.command("lift", epilog=LIFTING)
def lift(
    drivers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DRIVER", help="Drivers, as gpu.example.com; by default all, and the policies with them."
        ),
    ] = None,
    *,
    output: FormatOption = Format.TEXT,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Take fences away, so that kube-scheduler gives their devices to everybody again."""

    async def remove(cluster: Cluster) -> list[str]:
        return await fence_controller.lift(cluster.connection, drivers or ())

    removed = cluster_options.query(remove, kubeconfig=kubeconfig, context=context)
    if output is Format.JSON:
        terminal.as_json({"removed": removed})
        return
    for one in removed:
        terminal.say(f"removed {one}")
    if not removed:
        terminal.say("no such fence stands")
