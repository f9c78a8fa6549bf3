"""How many more gangs of one shape would start now, and what stops the next one.

Copies of a gang are added to the manifests of a cluster and simulated by `offline`, so the answer is the controller's.
The copies are newer than all that is in the input, so what waits there goes first.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from admission.api.kubernetes.pods import DEFAULT_SCHEDULER
from admission.api.values.decoding import Json
from admission.api.values.reasons import Detail
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.errors import FixError
from admission.scheduling.checks import demand
from admission.scheduling.fragments import Wanted
from admission.simulation import expand, offline
from admission.simulation.offline import STEPS, GangOutcome, Outcome, Verdict
from admission.workloads import gangs, topology

MOST = 100
"""Copies of one shape, unless the caller wants others."""

MOST_PODS = 10_000
"""Pods of all copies of a shape."""

GROWTH = 4
"""How many times as many copies are tried if all have started."""


class Shape(Protocol):
    """A gang of which copies are tried. shared: what all copies use, as templates. pods: how many it has at a time.

    namespace: empty for that of the settings.
    """

    @property
    def title(self) -> str: ...

    @property
    def shared(self) -> Sequence[Json]: ...

    @property
    def pods(self) -> int: ...

    @property
    def namespace(self) -> str: ...

    def name(self, number: int) -> str:
        """Return the name of a copy, so that the copies are tried in the order of their numbers."""
        ...

    def copy(self, number: int) -> list[Json]:
        """Return the objects of a copy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """A gang that a batch Job makes, which has a name."""

    title: str
    job: Json
    shared: tuple[Json, ...] = ()

    @property
    def pods(self) -> int:
        """Return how many pods the Job makes at a time; 1 where it does not say a number."""
        found = self.job.get("spec", {}).get("parallelism")
        return found if isinstance(found, int) and found > 0 else 1

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"].get("namespace") or "")

    def name(self, number: int) -> str:
        return f"{self.job['metadata']['name']}-{number:04}"

    def copy(self, number: int) -> list[Json]:
        found = copy.deepcopy(dict(self.job))
        known = found["metadata"]
        kept = {name: known[name] for name in ("namespace", "labels", "annotations") if name in known}
        found["metadata"] = {**kept, "name": self.name(number)}
        return [found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How copies are tried. most: copies of a shape. now: as in `expand`.

    schedulers, strands_least: of the controller's settings.
    """

    most: int = MOST
    now: datetime | None = None
    namespace: str = "default"
    profile: SchedulerProfile = compatibility.NEWEST
    steps: int = STEPS
    schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER})
    strands_least: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many gangs of a shape start. is_bound: all that were tried did, so that more may.

    reason, message, details: of the first copy that does not start. instead_of: gangs, `namespace/name`, that start or
    run on without the copies, and not beside those that start.
    """

    shape: str
    starts: int
    is_bound: bool = False
    reason: str = ""
    message: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)
    instead_of: tuple[str, ...] = ()


async def measure(objects: Sequence[Json], shape: Shape, settings: Settings) -> Capacity:
    """Return how many gangs of a shape would start in the cluster that the objects describe.

    Raises FixError if no gang is made of it.
    """
    before = {_key(gang) for gang in (await simulated(objects, settings)).gangs if gang.verdict is Verdict.ADMITTED}
    most = max(1, min(settings.most, MOST_PODS // shape.pods))
    tried = min(GROWTH, most)
    while True:
        found = await _tried(objects, shape, settings, tried, before)
        if not found.is_bound or tried == most:
            return found
        tried = min(tried * GROWTH, most)


async def _tried(objects: Sequence[Json], shape: Shape, settings: Settings, copies: int, before: set[str]) -> Capacity:
    made = [body for number in range(copies) for body in shape.copy(number)]
    names = [f"{shape.namespace or settings.namespace}/{shape.name(number)}" for number in range(copies)]
    outcome = await simulated([*objects, *shape.shared, *made], settings)
    by_key = {_key(gang): gang for gang in outcome.gangs}
    own = [by_key[name] for name in names if name in by_key]
    if not own:
        namespace = names[0].partition("/")[0]
        raise FixError(
            f"{shape.title}: no gang is made of it in namespace {namespace}; `muster lint` says what is wrong"
        )
    admitted = [gang for gang in own if gang.verdict is Verdict.ADMITTED]
    stopped = next((gang for gang in own if gang.verdict is not Verdict.ADMITTED), None)
    now = {key for key, gang in by_key.items() if gang.verdict is Verdict.ADMITTED}
    return Capacity(
        shape=shape.title,
        starts=len(admitted),
        is_bound=len(admitted) == copies,
        reason=stopped.reason or "" if stopped is not None else "",
        message=stopped.message if stopped is not None else "",
        details=stopped.details if stopped is not None else {},
        instead_of=tuple(sorted(before - now)),
    )


def wanted(objects: Sequence[Json], shape: Shape, settings: Settings) -> Wanted:
    """Return what one gang of a shape asks for. Raises FixError if no gang is made of it."""
    snapshot = expand.expand(
        [*objects, *shape.shared, *shape.copy(0)],
        now=settings.now,
        namespace=settings.namespace,
        profile=settings.profile,
    ).snapshot
    key = (shape.namespace or settings.namespace, shape.name(0))
    for group in gangs.groups(snapshot, {}):
        workload = group.identity.workload
        name = workload.name if workload is not None else group.identity.name
        if (group.identity.namespace, name) == key and group.waiting:
            asked = topology.request(group)
            pods = topology.with_subgroups(demand.demands(group, snapshot), asked, group)
            return Wanted(pods=pods, topology=asked)
    raise FixError(f"{shape.title}: no gang is made of it in namespace {key[0]}; `muster lint` says what is wrong")


async def simulated(objects: Sequence[Json], settings: Settings) -> Outcome:
    """Return what becomes of the gangs of a cluster."""
    cluster = expand.expand(objects, now=settings.now, namespace=settings.namespace, profile=settings.profile)
    return await offline.simulate(
        cluster, steps=settings.steps, schedulers=settings.schedulers, strands_least=settings.strands_least
    )


def _key(gang: GangOutcome) -> str:
    return f"{gang.namespace}/{gang.name}"
