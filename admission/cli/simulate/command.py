"""`muster simulate`: Muster's decisions about manifests, or about a trace of jobs, without a cluster."""

import asyncio
from collections.abc import Sequence
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any

import typer

from admission import heap
from admission.api.capacity import node_shapes
from admission.api.values import durations
from admission.api.values.reasons import Denial
from admission.cli import apps, config_command, manifest_reader, terminal
from admission.cli.config_command import ConfigOption, SetOption
from admission.cli.manifest_reader import BadInputError, Manifest
from admission.cli.simulate import replay
from admission.cli.terminal import Format, Number
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import FixError
from admission.settings import Controller
from admission.simulation import expand, offline, validation
from admission.simulation.claim_defaults import Act, Effect
from admission.simulation.expand import Expanded
from admission.simulation.offline import GangOutcome, NewNodes, Outcome, Verdict
from admission.simulation.replay import cluster
from admission.simulation.replay.autoscaler import Delays
from admission.simulation.replay.cluster import ReplayCluster
from admission.simulation.replay.player import Policy
from admission.status.node_shapes import UP

app = apps.single()

ALL_ADMITTED, SOME_HELD, SOME_DENIED = 0, 3, 4

NOUNS = {"meters": "meter", "claimpolicies": "ClaimPolicy", "nodeshapes": "NodeShape"}
STARTUP_AND_IDLE = {"--startup-time": timedelta(minutes=5), "--idle-time": timedelta(minutes=10)}
LONGEST_DELAY = timedelta(days=30)

MOST_NAMED = 4
"""The most gangs that are named for a shape."""
REPORTED_REASONS = ("ClassMissing", "GivesWay", "Doubtful")
"""Reasons of true conditions that users should know."""

EPILOG = apps.epilog(
    (
        "muster simulate config/examples jobs.yaml",
        "kubectl get nodes,resourceslices,deviceclasses,queues,meters -o yaml | muster simulate - jobs.yaml",
        "muster simulate cluster.yaml --arrivals trace.jsonl --compare fifo-count --chart trace.svg",
        "muster simulate cluster/ --until-empty --format json | jq '.gangs[] | select(.decision != \"Admitted\")'",
    ),
    "Exit codes: 0 all gangs are admitted (with --arrivals: all jobs start), 3 some are held (never start), 4 some are"
    " denied, 2 the input is wrong.",
)


CompareOption = Annotated[
    Policy | None, typer.Option(help="With --arrivals: play it so as well, and show both side by side.")
]
ChartOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="With --arrivals: draw use and waiting over time, as SVG.")
]
StartupOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="With --arrivals and --with-shapes: until a node comes, 5m by default."),
]
IdleOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="The same: until a node goes on which nothing runs, 10m by default."),
]

ArrivalsOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Play a trace of jobs in virtual time (.csv, else JSON lines).")
]


@app.command(epilog=EPILOG)
def simulate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders, or - for standard input.")],
    *,
    output: Annotated[Format, typer.Option("--format", "-o", help="Tables, or one JSON object.")] = Format.TEXT,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Let gangs end in the order of their start, and try what waits again.")
    ] = False,
    with_shapes: Annotated[
        bool, typer.Option("--with-shapes", help="Have nodes of NodeShapes come where gangs need them; show the price.")
    ] = False,
    startup_time: StartupOption = None,
    idle_time: IdleOption = None,
    now: Annotated[
        str | None, typer.Option(help="The time, RFC 3339; by default a minute after the latest time in the input.")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="For objects that name none.")] = "default",
    profile: Annotated[Release, typer.Option(help="The Kubernetes whose kube-scheduler decides.")] = Release.V1_37,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", metavar="FILE", help="ClaimPolicies to try beside those of PATH.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Bound of the search, per gang and question.")] = 50_000,
    config: ConfigOption = None,
    changes: SetOption = None,
    arrivals: ArrivalsOption = None,
    compare: CompareOption = None,
    chart: ChartOption = None,
) -> None:
    """Show which gangs would start, where and on which devices, and why the others wait. Needs no cluster.

    Reads any manifests: nodes, slices, classes, claims, templates, Jobs, pods and Muster's objects. Jobs become their
    pods. Pods that are bound and claims that are allocated count as in use. Of the settings
    controller.schedulers and controller.node_order count.
    """
    _refuse_options(arrivals, compare, chart, until_empty=until_empty, with_shapes=with_shapes)
    delays = _delays(startup_time, idle_time, is_played=with_shapes and arrivals is not None)
    manifests = [*manifest_reader.read(paths), *_policies(policy or [])]
    bodies = [manifest.body for manifest in manifests]
    cluster_state = expand.expand(bodies, now=_time(now), namespace=namespace, profile=compatibility.profile(profile))
    _refuse_problems(cluster_state, manifests)

    for one in manifests:
        for problem in validation.doubts(one.body):
            terminal.note(f"{one.label}: {problem.field}: {problem.message}")
    if with_shapes and not cluster_state.snapshot.shapes:
        raise FixError("--with-shapes needs a NodeShape in the input: write one, or see `muster shapes propose`")
    controller = config_command.chosen(config, {}, changes).settings.controller
    if arrivals is not None:
        replay_cluster = cluster.build_cluster(cluster_state, steps=steps, strands_least=controller.strands_least)
        for text in cluster_state.notes:
            terminal.note(text)
        raise typer.Exit(_play(replay_cluster, arrivals, compare, chart, output, delays))
    outcome = _outcome(cluster_state, steps, controller, until_empty=until_empty, with_shapes=with_shapes)

    for text in (*cluster_state.notes, *_warnings(outcome)):
        terminal.note(text)
    if output is Format.JSON:
        terminal.as_json(as_json(outcome, cluster_state.effects))
    else:
        show(outcome, cluster_state.effects)
    raise typer.Exit(exit_code(outcome, cluster_state.effects))


def _refuse_options(
    arrivals: str | None, compare: Policy | None, chart: str | None, *, until_empty: bool, with_shapes: bool
) -> None:
    for option, value in (("--compare", compare), ("--chart", chart)):
        if value is not None and arrivals is None:
            raise FixError(f"{option} is about a trace; add --arrivals FILE")
    if until_empty and arrivals is not None:
        raise FixError("--until-empty is without times; a trace that --arrivals plays says when its jobs end")
    if with_shapes and until_empty:
        raise FixError(
            "--with-shapes starts all gangs at once, and with --until-empty they wait for each other; leave one out"
        )


def _delays(startup: str | None, idle: str | None, *, is_played: bool) -> Delays | None:
    """Return with which delays nodes come and go; None if none does."""
    given = {"--startup-time": startup, "--idle-time": idle}
    if not is_played:
        named = next((option for option, text in given.items() if text is not None), None)
        if named is not None:
            raise FixError(f"{named} is about nodes that come in a trace; add --with-shapes and --arrivals FILE")
        return None
    read = {
        option: STARTUP_AND_IDLE[option] if text is None else _delay(option, text) for option, text in given.items()
    }
    return Delays(startup=read["--startup-time"], idle=read["--idle-time"])


def _delay(option: str, text: str) -> timedelta:
    try:
        delay = durations.parse(text)
    except ValueError as error:
        raise FixError(f"{option}: {error}") from error
    if delay > LONGEST_DELAY:
        longest = durations.render(LONGEST_DELAY)
        raise FixError(f"{option}: {text} is longer than a node takes to come, or stays idle; write at most {longest}")
    return delay


def _outcome(
    cluster_state: Expanded, steps: int, controller: Controller, *, until_empty: bool, with_shapes: bool
) -> Outcome:
    simulation = offline.simulate(
        cluster_state,
        until_empty=until_empty,
        with_shapes=with_shapes,
        steps=steps,
        schedulers=frozenset(controller.schedulers),
        strands_least=controller.strands_least,
    )
    with heap.frozen():
        return asyncio.run(simulation)


def _play(  # noqa: PLR0917 - as the command has them
    replay_cluster: ReplayCluster,
    path: str,
    compare: Policy | None,
    chart: str | None,
    output: Format,
    delays: Delays | None,
) -> int:
    """Replay a trace and print its figures; return the exit code."""
    policies = dict.fromkeys(policy for policy in (Policy.MUSTER, compare) if policy is not None)
    results = replay.run(replay_cluster, path, list(policies), delays)
    if chart is not None:
        replay.draw(chart, results)
    if output is Format.JSON:
        terminal.as_json(replay.as_json(results))
    else:
        replay.show(results)
    reasons_unstarted = [job.why for job in replay.unstarted(results[0])]
    if any(isinstance(why, Denial) for why in reasons_unstarted):
        return SOME_DENIED
    return SOME_HELD if reasons_unstarted else ALL_ADMITTED


def exit_code(outcome: Outcome, effects: Sequence[Effect] = ()) -> int:
    """Return 0, 3 or 4, by the worst decision about a gang, or about a claim or template at admission."""
    if Verdict.DENIED in outcome.verdicts or any(effect.act is Act.DENY for effect in effects):
        return SOME_DENIED
    return SOME_HELD if Verdict.HELD in outcome.verdicts else ALL_ADMITTED


def as_json(outcome: Outcome, effects: Sequence[Effect] = ()) -> dict[str, Any]:
    """Return the documented JSON (docs/commands.md)."""
    return {
        "gangs": [_gang(gang) for gang in outcome.gangs],
        "queues": [
            {
                "name": queue.name,
                "meters": {meter: terminal.use(use) for meter, use in sorted(queue.meters.items())},
                "budgets": [terminal.budget(budget) for budget in queue.budgets],
            }
            for queue in outcome.queues
        ],
        "claims": [{"object": one.source, "action": one.act, "message": one.message} for one in effects],
        "newNodes": [
            {
                "shape": one.shape,
                "count": one.count,
                "pricePerHour": None if one.price is None else node_shapes.render_price(one.price),
                "gangs": list(one.gangs),
            }
            for one in outcome.new_nodes
        ],
    }


def show(outcome: Outcome, effects: Sequence[Effect] = ()) -> None:
    """Print the tables."""
    if effects:
        effect_rows = [(effect.source, effect.act, effect.message) for effect in effects]
        terminal.table("Claims at the door", ("object", "action", "what"), effect_rows)
    terminal.table(
        "Gangs",
        (Number("order"), "gang", "queue", "decision", "charges", "where, or why not"),
        [
            (
                gang.order,
                f"{gang.namespace}/{gang.name}",
                gang.queue,
                gang.verdict,
                _charges(gang),
                _location_or_reason(gang),
            )
            for gang in outcome.gangs
        ],
        empty="no pod of the input enters a queue",
    )
    planned = [gang for gang in outcome.gangs if gang.plan]
    if planned:
        terminal.table(
            "Plans",
            ("gang", "pod", "node", "devices"),
            [(f"{gang.namespace}/{gang.name}", *row) for gang in planned for row in terminal.plan_rows(gang.plan)],
        )
    if outcome.new_nodes:
        _show_new_nodes(outcome.new_nodes)
    headings = ("queue", "meter", *map(Number, ("nominal", "used", "borrowed", "lent", "pending")))
    rows = [row for queue in outcome.queues for row in terminal.use_rows(queue.name, outcome.sums[queue.name].uses)]
    terminal.table("Queues", headings, rows)
    if any(queue.budgets for queue in outcome.queues):
        budget_rows = [row for queue in outcome.queues for row in terminal.budget_rows(queue)]
        terminal.table("Budgets", terminal.BUDGET_HEADINGS, budget_rows)


def _show_new_nodes(new_nodes: Sequence[NewNodes]) -> None:
    """Print the nodes that had to come, with their prices and the sum of those that are known."""
    rows = [
        (one.shape, one.count, _price(one.price), _price(one.price, one.count), _named(one.gangs)) for one in new_nodes
    ]
    known = [one.price * one.count for one in new_nodes if one.price is not None]
    count = sum(one.count for one in new_nodes)
    without = "" if len(known) == len(new_nodes) else "without those that have no price"
    rows.append(("in all", count, "", _price(sum(known, Fraction(0))) if known else "-", without))
    headings = ("shape", Number("nodes"), Number("each per hour"), Number("per hour"), "for")
    terminal.table("Nodes to come", headings, rows)


def _price(price: Fraction | None, count: int = 1) -> str:
    return "-" if price is None else node_shapes.render_price(price * count)


def _named(gangs: Sequence[str]) -> str:
    more = f" and {len(gangs) - MOST_NAMED} more" if len(gangs) > MOST_NAMED else ""
    return f"{', '.join(gangs[:MOST_NAMED])}{more}"


def _policies(paths: Sequence[str]) -> list[Manifest]:
    """Read the policies to try; they replace policies of the same name in PATH."""
    found = manifest_reader.read(paths)
    others = [manifest for manifest in found if manifest.body.get("kind") != "ClaimPolicy"]
    if others:
        raise BadInputError([f"{one.place()}: {one.label}: is no ClaimPolicy; name it as a PATH" for one in others])
    return found


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise FixError(f"--now: {text!r} is not a time such as 2026-01-31T12:00:00Z") from error
    if time.tzinfo is None:
        raise FixError(f"--now: {text!r} has no time zone; add Z or an offset such as +02:00")
    if not MINYEAR < time.year < MAXYEAR:
        raise FixError(
            f"--now: {text!r} leaves no time before or after it; name a year from {MINYEAR + 1} to {MAXYEAR - 1}"
        )
    return time


def _refuse_problems(cluster_state: Expanded, manifests: Sequence[Manifest]) -> None:
    problems = [
        manifests[index].problem(problem) for index, error in cluster_state.problems for problem in error.problems
    ]
    if problems:
        raise BadInputError(problems)


def _warnings(outcome: Outcome) -> list[str]:
    """Return the problems of queues and meters, without which a hold may be hard to understand."""
    reports = [(f"queue {queue.name}", queue.conditions) for queue in outcome.queues]
    reports += [(f"{NOUNS[report.plural]} {report.name}", report.conditions) for report in outcome.conditions]
    notable = [
        (name, condition)
        for name, conditions in reports
        for condition in conditions
        if (condition.status != "True" and condition.type != UP) or condition.reason in REPORTED_REASONS
    ]
    notes = [f"{name}: {condition.message}" for name, condition in notable]
    notes += [
        f"gang {gang.namespace}/{gang.name}: not judged: {text}"
        for gang in outcome.gangs
        for text in gang.not_simulated
    ]
    if any(queue.budgets for queue in outcome.queues):
        notes.append("budgets: the input has no history, so nothing counts as spent before the simulation")
    return notes


def _gang(gang: GangOutcome) -> dict[str, Any]:
    return {
        "namespace": gang.namespace,
        "name": gang.name,
        "queue": gang.queue,
        "decision": gang.verdict,
        "reason": gang.reason,
        "message": gang.message,
        "details": dict(gang.details),
        "placement": gang.placement or None,
        "notSimulated": list(gang.not_simulated),
        "topology": terminal.topology(gang.topology),
        "order": gang.order,
        "plan": terminal.plan(gang.plan),
        "charges": terminal.amounts(gang.charges),
        "later": list(gang.later),
    }


def _charges(gang: GangOutcome) -> str:
    return terminal.charge(gang.charges)


def _location_or_reason(gang: GangOutcome) -> str:
    if gang.verdict is Verdict.ADMITTED:
        return "; ".join((terminal.nodes_of(gang.plan) or gang.message, *gang.later))
    return f"{gang.reason}: {gang.message}"
