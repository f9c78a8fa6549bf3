"""`muster init`: prints, or applies, what a cluster needs for its first gang."""

import re
import sys
from typing import Annotated

import typer
import yaml

from admission.api.muster.gangs import GangReport
from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, manifest_reader, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.init import live_cluster, proposal
from admission.cli.init.live_cluster import ClusterObjects
from admission.cli.init.proposal import Proposal
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import FixError
from admission.simulation.offline import Verdict

app = apps.single()

TEAM = "team-a"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

EPILOG = apps.epilog(
    (
        "muster init --team vision > first.yaml",
        "muster init --team vision --apply",
        "kubectl get nodes,namespaces,resourceslices,deviceclasses -o yaml | muster init -",
    ),
    "Without PATH the cluster is read. What exists already is left as it is, and only what is missing is printed. "
    "--apply creates it by your own rights, and waits until the gang runs.",
    "Exit codes: 0 done, 1 the cluster does not answer, or Muster does not run there (--apply), 2 there is no device "
    "that a claim can ask for, or a right is missing.",
)


@app.command(epilog=EPILOG)
def init(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files, folders, or - for standard input, instead of the cluster."),
    ] = None,
    *,
    team: Annotated[str, typer.Option(help="Name of the team's namespace and queue.")] = TEAM,
    apply: Annotated[bool, typer.Option("--apply", help="Create the objects in the cluster.")] = False,
    image: Annotated[str, typer.Option(help="Image of the sample Job; it needs `sleep`.")] = proposal.IMAGE,
    profile: Annotated[
        Release | None, typer.Option(help="The Kubernetes of PATH.", show_default=str(Release.V1_37))
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Print a Meter, Queues and a sample Job for this very cluster, of devices that it has."""
    if not _LABEL.fullmatch(team):
        raise FixError(f"--team: {team!r} is not a namespace's name such as vision")
    if team == proposal.POOL:
        raise FixError(f"--team: {team} is the queue of all teams, above those of each; choose another name")
    if paths and apply:
        raise FixError("--apply creates objects in the cluster: leave PATH out, so that they are made for that cluster")
    if paths:
        read = ClusterObjects(
            bodies=tuple(one.body for one in manifest_reader.read(paths)),
            profile=compatibility.profile(profile) if profile else compatibility.NEWEST,
        )
    else:
        read = cluster_options.query(live_cluster.read, kubeconfig=kubeconfig, context=context)
    proposed = proposal.propose(read.bodies, team=team, image=image, profile=read.profile)

    for text in (*read.notes, *proposed.notes, _result(proposed)):
        terminal.note(text)
    if not apply:
        sys.stdout.write(as_yaml(proposed))
        return

    async def create(cluster: Cluster) -> GangReport | None:
        await live_cluster.create(cluster, [one.body for one in proposed.documents], proposed.queue, terminal.say)
        return await live_cluster.gang_of(cluster, team, proposal.JOB)

    terminal.say(_seen(cluster_options.query(create, kubeconfig=kubeconfig, context=context), team))


def as_yaml(proposed: Proposal) -> str:
    """Return the objects as documents, each with a comment."""
    return "---\n".join(f"# {one.comment}\n{_dumped(one.body)}" for one in proposed.documents)


def _dumped(body: Json) -> str:
    text: str = yaml.safe_dump(body, sort_keys=False, width=120)
    return text


def _result(proposed: Proposal) -> str:
    sample = proposed.sample
    job = f"Job {proposed.team}/{proposal.JOB}"
    if sample.verdict is Verdict.ADMITTED:
        return f"{job} would start now, on {terminal.nodes_of(sample.plan)}"
    return f"{job} would wait now: {sample.reason}: {sample.message}"


def _seen(gang: GangReport | None, team: str) -> str:
    if gang is None:
        return f"no gang of Job {team}/{proposal.JOB} was seen: kubectl -n {team} describe job {proposal.JOB}"
    if gang.hold is not None:
        return f"gang {gang.key} waits: {gang.hold.reason}: {gang.hold.message}"
    where = f" on {terminal.nodes_of(gang.plan)}" if gang.plan else ""
    return f"gang {gang.key} is {gang.phase}{where}; kubectl -n {team} get gangs shows it"
