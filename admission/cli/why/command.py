"""`muster why`: why a pod or gang waits, with its numbers and what would have to change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import DomainReport, GangReport, Phase, TopologyReport
from admission.api.values import durations
from admission.api.values.reasons import Detail
from admission.cli import apps, cluster_options, completion, referents, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.gang import reports as gang_reports
from admission.cli.output import watch_output
from admission.cli.output.watch_output import WatchOption
from admission.cli.terminal import Format
from admission.cli.why import device_use, gang_lookup
from admission.cli.why.gang_lookup import PodGang
from admission.errors import FixError
from admission.kube.cache import watched_resources
from admission.podpolicy import outside_queues
from admission.status import advice

app = apps.single()

ADMITTED, HELD = 0, 3

MOST_NAMED = 4
"""The most members of a list in the output."""

EPILOG = apps.epilog(
    (
        "muster why team-a/train",
        "muster why train-0-x7k2p --namespace team-a",
        "muster why team-a/train --watch",
        "muster why team-a/train --format json | jq .details",
    ),
    "NAME is a pod, a gang, or the workload that makes its pods. Exit codes: 0 it is admitted or in no "
    "queue, 3 it is held, 1 the cluster does not answer, 2 there is no such pod or gang.",
)


@app.command(epilog=EPILOG)
def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A pod, gang or workload: name, or namespace/name.",
            autocompletion=completion.gangs,
            show_default=False,
        ),
    ],
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where NAME names none.")] = "default",
    again: WatchOption = False,
    output: Annotated[Format, typer.Option("--format", "-o", help="Sentences, or one JSON object.")] = Format.TEXT,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Say why a pod or gang waits, in words and numbers, and what would have to change."""

    async def fetch(cluster: Cluster) -> GangReport | str:
        found = await _find(cluster, *cluster_options.split_name(name, namespace))
        if isinstance(found, Pod):
            held = await device_use.metered(found, cluster)
            return outside(await gang_lookup.find(found, cluster), held)
        return await referents.in_gang(found, cluster)

    def write(found: GangReport | str) -> None:
        if isinstance(found, str):
            terminal.say(found)
        elif output is Format.JSON:
            terminal.as_json(gang_reports.as_json(found) | {"advice": advice.advice(found)})
        else:
            show(found, now=datetime.now(UTC))

    found = watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context), write, again=again
    )
    waits = isinstance(found, GangReport) and found.phase in (Phase.PENDING, Phase.EVICTED)
    raise typer.Exit(HELD if waits else ADMITTED)


def outside(found: PodGang, held: Sequence[str] = ()) -> str:
    """Return why Muster does not hold a pod. held: the metered classes and resources that it takes."""
    text = f"pod {found.pod.meta.key} is in no queue: Muster does not hold it"
    if held:
        text += f"; {outside_queues.describe(held)}"
    if found.named is None:
        return text
    owner, label = found.named
    return (
        f"{text}; {label.where} of {owner.kind} {owner.name} names queue {label.name}, but the pod was made without it:"
        f" the {owner.kind} is older than Muster's webhook, or was made while that was away; create it again"
    )


def show(gang: GangReport, *, now: datetime) -> None:
    """Print one gang's state."""
    terminal.say(_headline(gang, now))
    for line in _also_said(gang):
        terminal.say(line)
    if gang.hold is not None:
        terminal.say(f"{gang.hold.reason}: {gang.hold.message}.")
        terminal.table("The numbers behind it", ("what", "value"), _numbers(gang.hold.details))
        planned = advice.planned(gang.hold.details)
        if planned:
            terminal.table("Where its pods would go", ("node", "pods"), planned)
        terminal.say(f"What would have to change: {advice.advice(gang)}.")
        if gang.start_reason:
            terminal.say(_estimate(gang))
    elif gang.plan:
        terminal.table("Plan", ("pod", "node", "devices"), terminal.plan_rows(gang.plan))
        terminal.say(f"Charged to queue {gang.queue}: {terminal.charge(gang.charges)}.")


def _also_said(gang: GangReport) -> Iterator[str]:
    """Yield what is said of a gang, whether or not it waits."""
    if gang.evicted is not None:
        yield f"It was taken back ({gang.evicted.reason}): {gang.evicted.message}."
    if gang.idle is not None:
        yield f"It is idle: {gang.idle.message}."
    if gang.memory is not None:
        yield f"Memory: {gang.memory.message}."
    if gang.answered is not None:
        yield f"Last request: {gang_reports.request(gang.answered)}."
    if gang.topology is not None:
        yield from _topology_lines(gang.topology)
    for text in gang.not_simulated:
        yield f"Muster does not judge {text}."
    for text in gang.later:
        yield f"It {text}."


async def _find(cluster: Cluster, namespace: str, name: str) -> GangReport | Pod:
    """Return the gang with that name, or of a workload or pod with that name; or the pod, if it is in no queue."""
    reports = await gang_reports.reports(cluster, namespace)
    match = gang_reports.named(reports, name)
    if match is not None:
        return match
    pod = await _pod(cluster, namespace, name)
    if pod is None:
        raise FixError(
            f"there is no gang, workload of a gang, or pod {name} in namespace {namespace}; try `muster gang list`"
        )
    match = _match_gang(await gang_lookup.find(pod, cluster), reports)
    if match is not None:
        return match
    if not pod.queue:
        return pod
    raise FixError(f"pod {pod.meta.key} is in queue {pod.queue}, but its gang is not known yet: is Muster running?")


async def _pod(cluster: Cluster, namespace: str, name: str) -> Pod | None:
    found = await cluster.get_object(watched_resources.PODS, name, namespace)
    return pods.decode(found) if found else None


def _match_gang(found: PodGang, reports: Sequence[GangReport]) -> GangReport | None:
    """Return the gang of a pod: with its gang's name, or with a place for it, or with one of its owners as workload.

    The last is for gangs whose identity is still provisional because Muster may not read the pod's owners.
    """
    tests: tuple[Callable[[GangReport], bool], ...] = (
        lambda gang: gang.name == found.gang,
        lambda gang: any(planned.pod == found.pod.meta.key for planned in gang.plan),
        lambda gang: gang.workload is not None and gang.workload.uid in found.owner_uids,
    )
    return next((gang for fits in tests for gang in reports if fits(gang)), None)


def _headline(gang: GangReport, now: datetime) -> str:
    pods_ = _pods(gang)
    if gang.hold is None:
        return f"Gang {gang.key} ({pods_}) of queue {gang.queue}: {gang.phase}."
    place = f", place {gang.position}" if gang.position else ""
    since = f", for {durations.render(now - gang.queued_since)} now" if gang.queued_since else ""
    if gang.phase in (Phase.ADMITTED, Phase.RUNNING):
        return f"Gang {gang.key} ({pods_}) of queue {gang.queue}: {gang.phase}; pods that join it wait{place}."
    if gang.never_fits:
        return f"Gang {gang.key} ({pods_}) can never start as it is; it is in queue {gang.queue}{place}{since}."
    return f"Gang {gang.key} ({pods_}) waits in queue {gang.queue}{place}{since}."


def _pods(gang: GangReport) -> str:
    """Return the gang's number of pods; or that there are none before its workload is resumed."""
    size = f"{gang.size} pod{'s'[: gang.size != 1]}"
    if gang.expected and gang.workload is not None:
        return f"{size} to come; {gang.workload.kind} {gang.workload.name} is suspended until it may start"
    return size if gang.pods == gang.size else f"{gang.pods} of {size}"


def _topology_lines(topology: TopologyReport) -> Iterator[str]:
    if topology.gang is not None:
        yield _domains("Its pods", topology.gang)
    for name, domains in topology.subgroups[:MOST_SUBGROUPS]:
        yield _domains(f"Those of subgroup {name}", domains)
    if len(topology.subgroups) > MOST_SUBGROUPS:
        yield f"So with {len(topology.subgroups) - MOST_SUBGROUPS} more subgroups; see status.topology of the Gang."


MOST_SUBGROUPS = 16
"""The most subgroups that are printed one by one."""


def _domains(who: str, report: DomainReport) -> str:
    request = report.request
    where = f"; they are in {', '.join(report.domains)}" if report.domains else ""
    if not request.required:
        return f"{who} would rather be in one domain of {request.preferred}{where}."
    requirement = f"{who} have to be in one domain of {request.required}"
    if not request.preferred:
        return f"{requirement}{where}."
    preferred = f" ({', '.join(report.preferred)})" if report.preferred else ""
    return f"{requirement}, and would rather be in one of {request.preferred}{where}{preferred}."


def _estimate(gang: GangReport) -> str:
    """Return when a gang is expected to start, if that was estimated."""
    if gang.start_estimate is None:
        return f"When it may start is not known: {gang.start_reason}."
    return f"It is to start at {terminal.moment(gang.start_estimate)}, {gang.start_reason}."


def _numbers(details: Mapping[str, Detail]) -> list[tuple[str, str]]:
    return [
        (name, _shortened(value) if isinstance(value, list) else str(value))
        for name, value in sorted(details.items())
        if name != advice.PLAN
    ]


def _shortened(values: list[str]) -> str:
    """Return the first few values; `--format json` has all."""
    more = len(values) - MOST_NAMED
    return ", ".join(values[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
