"""Jobs of a trace as waiting gangs: the pods and claims that they would have.

For `muster simulate --arrivals`. Pods and claims are made when a job is first decided, since most waiting jobs never
reach the planner.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.muster.queues import Queue
from admission.api.traces import Arrival
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName, Uid
from admission.scheduling.checks.chain import Known
from admission.workloads.gang_key import Identity
from admission.workloads.gangs import Group

NAMESPACE = "trace"
MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True, eq=False)
class Waiting:
    """A job that has arrived and waits. queued_since: its arrival, for the order of queues.

    known: the results about it that stay valid. was_reclaimed: whether it waits since others took back what its queue
    had borrowed.
    """

    arrival: Arrival
    queued_since: datetime
    group: Group | None = None
    claims: tuple[Claim, ...] = ()
    known: Known | None = None
    was_reclaimed: bool = False

    @property
    def priority(self) -> int:
        return self.arrival.priority

    @property
    def key(self) -> str:
        return f"{NAMESPACE}/{self.arrival.name}"

    @property
    def queue(self) -> QueueName:
        return self.arrival.queue

    @property
    def pods(self) -> int:
        return self.arrival.pods


def requested_devices(arrival: Arrival) -> int:
    """Return how many devices a job requests, by the first alternatives of its requests."""
    return arrival.pods * sum(
        request.alternatives[0].count for spec in arrival.pod_requests.claims for request in spec.requests
    )


def expected(arrival: Arrival, queue: Queue) -> timedelta | None:
    """Return the expected runtime of a job, by the rule of `runtime` for gangs; None if unknown."""
    stated = arrival.declared or queue.default_runtime
    return min((one for one in (stated, queue.max_runtime) if one is not None), default=None)


def gang_of(waiting: Waiting) -> Group:
    """Return the gang of a job, making its pods and claims at the first call."""
    if waiting.group is None:
        pods = tuple(_pods(waiting))
        waiting.claims = tuple(_claims(waiting, pods))
        waiting.group = Group(
            identity=Identity(
                uid=GangUid(waiting.key),
                namespace=NAMESPACE,
                name=waiting.arrival.name,
                size=len(pods),
                needed=len(pods),
            ),
            queue=waiting.queue,
            priority=waiting.priority,
            first_queued=waiting.queued_since,
            queued_since=waiting.queued_since,
            pods=pods,
        )
    return waiting.group


def _pods(waiting: Waiting) -> Iterator[Pod]:
    arrival, pod_requests = waiting.arrival, waiting.arrival.pod_requests
    annotations = {names.RUNTIME: f"{arrival.declared // MICROSECOND}us"} if arrival.declared is not None else {}
    if pod_requests.topology:
        annotations[names.TOPOLOGY] = pod_requests.topology
    for number in range(arrival.pods):
        name = f"{arrival.name}-{number}"
        meta = Meta(
            name=name,
            namespace=NAMESPACE,
            uid=Uid(name),
            labels={names.QUEUE: arrival.queue},
            annotations=annotations,
            created=waiting.queued_since,
        )
        claims = tuple(PodClaim(name=f"c{at}", claim=f"{name}-c{at}") for at in range(len(pod_requests.claims)))
        yield Pod(
            meta=meta,
            gates=(names.GATE,),
            claims=claims,
            requests=pod_requests.requests,
            tolerations=pod_requests.tolerations,
            priority=arrival.priority,
        )


def _claims(waiting: Waiting, pods: tuple[Pod, ...]) -> Iterator[Claim]:
    for pod in pods:
        for pod_claim, spec in zip(pod.claims, waiting.arrival.pod_requests.claims, strict=True):
            name = str(pod_claim.claim)
            yield Claim(
                meta=Meta(name=name, namespace=NAMESPACE, uid=Uid(name), created=waiting.queued_since), spec=spec
            )
