"""`muster queue stop` and `resume`: whether a queue admits gangs, by its `spec.stopPolicy`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import typer

from admission.api.muster import queues
from admission.api.muster.queues import Queue, StopPolicy
from admission.api.values.names import QueueName
from admission.cli import apps, completion, terminal
from admission.cli.cluster_options import Cluster
from admission.errors import FixError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.client import paths
from admission.kube.client.connection import PatchKind

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Its name.", autocompletion=completion.queues, show_default=False)
]

EXITS = "Exit codes: 0 it is as was asked for, 1 the cluster does not answer, 2 there is no such queue, or it refuses."

STOPPING = apps.epilog(
    ("muster queue stop research", "muster queue stop research --drain --watch"),
    "Neither the queue nor any below it lets a gang in until `muster queue resume`. What runs goes on, unless it is "
    "drained: then gangs are evicted whole and wait in the queue. It takes the right to patch queues.",
    EXITS,
)

RESUMING = apps.epilog(("muster queue resume research",), EXITS)

_EFFECTS = {
    StopPolicy.NONE: "lets gangs in",
    StopPolicy.HOLD: "lets no gang in; what runs goes on",
    StopPolicy.HOLD_AND_DRAIN: "lets no gang in, and evicts what it has let in",
}


async def change(cluster: Cluster, name: str, policy: StopPolicy) -> None:
    """Set the policy of a queue, and print its effect. Raises FixError if the queue does not exist."""
    queues_by_name = {
        queue.name: queue for queue in map(queues.decode, await cluster.list_objects(watched_resources.QUEUES))
    }
    queue = queues_by_name.get(QueueName(name))
    if queue is None:
        raise unknown_queue(name, queues_by_name.values())
    suffix = "" if queue.stop_policy is not policy else " as before"
    if not suffix:
        body = {"spec": {"stopPolicy": str(policy)}}
        try:
            await cluster.connection.patch(paths.join(watched_resources.QUEUES.path, name), body, PatchKind.MERGE)
        except GoneError as error:
            raise unknown_queue(name, queues_by_name.values()) from error
    terminal.say(f"queue {name} {_EFFECTS[policy]}{suffix}")
    for line in _side_effects(queue, policy, queues_by_name.values()):
        terminal.note(line)


def unknown_queue(name: str, queues_: Iterable[Queue]) -> FixError:
    """Return the error for a queue that does not exist."""
    names = ", ".join(sorted(queue.name for queue in queues_)) or "none"
    return FixError(f"there is no queue {name}; there are: {names}")


def _side_effects(queue: Queue, policy: StopPolicy, queues_: Iterable[Queue]) -> Iterator[str]:
    """Yield the effects on other queues: those below stop too, and a stopped one above still stops this one."""
    by_name = {other.name: other for other in queues_}
    descendants = sorted(other.name for other in by_name.values() if queue.name in _ancestors(other, by_name))
    if policy is not StopPolicy.NONE and descendants:
        yield f"so do the queues below it: {', '.join(descendants)}"
    if policy is StopPolicy.NONE:
        for name in _ancestors(queue, by_name):
            if by_name[name].stop_policy is not StopPolicy.NONE:
                yield f"queue {name} above it is stopped still: `muster queue resume {name}`"


def _ancestors(queue: Queue, queues_by_name: Mapping[QueueName, Queue]) -> list[QueueName]:
    """Return the names of a queue's ancestors, the nearest first; parents may form a cycle."""
    found: list[QueueName] = []
    parent = queue.parent
    while parent is not None and parent in queues_by_name and parent not in found:
        found.append(parent)
        parent = queues_by_name[parent].parent
    return found
