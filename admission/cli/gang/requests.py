"""`muster gang evict`, `requeue` and `prioritize`: a request in the Gang, which the controller answers.

The request is written by the user's own rights (patch on gangs), under the name by which the API server knows the user.
"""

import asyncio
import uuid
from dataclasses import dataclass

from admission.api import suggestions
from admission.api.muster import queues, status_views
from admission.api.muster.gang_requests import Action, AnsweredRequest
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.queues import Queue
from admission.api.values import names
from admission.cli import apps, terminal
from admission.cli.cluster_options import Cluster
from admission.cli.gang import reports
from admission.errors import ClusterUnavailableError, FixError, ForbiddenError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.client import paths
from admission.kube.client.connection import PatchKind

ANSWER_SECONDS = 15.0
POLL_SECONDS = 0.2
"""How long to wait for the controller's answer, and between two looks."""

NOTHING_DONE = 3

EXITS = (
    "It takes the right to patch gangs. Exit codes: 0 done, 3 the controller has done nothing, and says why; 1 neither "
    "the cluster nor the controller answers; 2 there is no such gang, or nothing that could be done with it."
)

EVICTING = apps.epilog(
    ("muster gang evict team-a/train", "muster gang evict train -n team-a --reason 'node gpu-7 is repaired'"),
    "All of its pods end, with their grace; it waits again, and is tried after the queue's back-off. Status, Events "
    "and the ledger say who asked, and why.",
    EXITS,
)

REQUEUEING = apps.epilog(
    ("muster gang requeue team-a/train",),
    "Its evictions so far are not counted any more either, so it is tried again where its queue allows no new tries.",
    EXITS,
)

PRIORITIZING = apps.epilog(
    ("muster gang prioritize team-a/train urgent",),
    "The class counts in place of what its pods say, also after an eviction. A gang that was let in keeps its "
    "priority.",
    EXITS,
)

STARTED = (Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING)
WAITING = (Phase.PENDING, Phase.EVICTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of the gang with a name, or of a workload with it. priority_class: for Prioritize."""

    action: Action
    namespace: str
    name: str
    reason: str
    priority_class: str = ""


async def ask(cluster: Cluster, asked: Asked) -> bool:
    """Ask, print the controller's answer, and return whether anything was done.

    Raises FixError where nothing can be done with the gang, ClusterUnavailableError without an answer.
    """
    report = await reports.find(cluster, asked.namespace, asked.name)
    _check_phase(report, asked.action)
    if asked.action is Action.PRIORITIZE:
        await _check_class(cluster, report, asked.priority_class)
    answered = await _answer(cluster, report, await _write(cluster, report, asked))
    terminal.say(f"gang {report.key}: {answered.outcome}")
    return not answered.outcome.startswith("nothing is done")


def _check_phase(report: GangReport, action: Action) -> None:
    phases = STARTED if action is Action.EVICT else WAITING
    if report.phase in phases:
        return
    why_not = {
        Action.EVICT: "it holds nothing that could be taken back",
        Action.REQUEUE: "it does not wait",
        Action.PRIORITIZE: "only the priority of a gang that waits can be changed",
    }
    raise FixError(f"gang {report.key} is {report.phase}: {why_not[action]}")


async def _check_class(cluster: Cluster, report: GangReport, name: str) -> None:
    """Raise FixError for a class that the queue does not have. Who may not read queues is told by the webhook."""
    try:
        found = await cluster.get_object(watched_resources.QUEUES, report.queue)
    except ForbiddenError:
        return
    queue: Queue | None = queues.decode(found) if found is not None else None
    if queue is None or queue.has_priority_class(name):
        return
    known = suggestions.listed(name, (one.name for one in queue.priority_classes))
    there = f"it has: {known}" if known else "it has none; add some in its spec.priorityClasses"
    raise FixError(f"queue {report.queue} has no priority class {name}; {there}")


async def _write(cluster: Cluster, report: GangReport, asked: Asked) -> str:
    """Write the request, and return its id."""
    identity = uuid.uuid4().hex
    request = {
        "id": identity,
        "action": str(asked.action),
        "by": await cluster.connection.who_am_i(),
        # Null removes what an earlier request had.
        "reason": asked.reason or None,
        "priorityClass": asked.priority_class or None,
    }
    try:
        await cluster.connection.patch(_path(report), {"spec": {"request": request}}, PatchKind.MERGE)
    except GoneError as error:
        raise FixError(f"gang {report.key} was deleted meanwhile") from error
    return identity


async def _answer(cluster: Cluster, report: GangReport, identity: str) -> AnsweredRequest:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                found = await cluster.get_object(watched_resources.GANGS, report.name, report.namespace)
                if found is None:
                    raise FixError(f"gang {report.key} was deleted meanwhile")
                answered = status_views.gang(found).answered
                if answered is not None and answered.id == identity:
                    return answered
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise ClusterUnavailableError(
            f"the request is written into gang {report.key}, and no controller has answered it within"
            f" {ANSWER_SECONDS:.0f} s; it does so as soon as it runs (`muster doctor`); `muster gang show {report.key}`"
            " has the answer then"
        ) from None


def _path(report: GangReport) -> str:
    return paths.within(f"/apis/{names.API_VERSION}", report.namespace, "gangs", report.name)
