"""A leader that remembers what it saw decides what one decides that sees everything for the first time."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from admission.api.muster import meters
from admission.api.muster.meters import Meter
from admission.api.muster.queues import QueueingStrategy
from admission.api.snapshot import Snapshot
from admission.api.values.names import GANG_MIN, MeterName, QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.scheduling.backfill.unreachable import NeverFits
from admission.scheduling.cache.verdict_cache import PROOF, Verdict
from admission.scheduling.checks.chain import Decision, Grant, Inputs
from admission.simulation import in_memory
from tests import soaking
from tests.builders import CLASS, NOON, a_cluster

QUEUES = ("q", "r")

CORES = meters.decode({"metadata": {"name": "cores", "generation": 1}, "spec": {"resources": [{"name": "cpu"}]}})


def of_model(model: str) -> str:
    return f"device.attributes['{CLASS}'].model == '{model}'"


def counting(model: str) -> Meter:
    sources = [{"deviceClasses": [CLASS], "selector": of_model(model), "count": {}}]
    return meters.decode({"metadata": {"name": model, "generation": 1}, "spec": {"sources": sources}})


PREFERENCES = {"kinds": [{"name": m, "deviceClasses": [CLASS], "selector": of_model(m)} for m in ("a100", "h100")]}


class Town(in_memory.Cluster):
    """A cluster with two queues on three nodes, in which things happen by chance.

    prefers: whether the queues prefer one of the kinds of devices that there then are, with quotas by kind.
    """

    def __init__(self, random: Random, *, prefers: bool = False) -> None:
        builder = a_cluster().node("a", gpus=4).node("b", gpus=2, model="h100" if prefers else "a100")
        builder.node("c", gpus=1, cpu="4")
        builder._meters += [CORES, *map(counting, ("a100", "h100") if prefers else ())]
        for name, gpus, cores, when in (("q", 8, 12, "Borrow"), ("r", 4, 6, "TryNext")):
            nominal = {"claims": 100, "gpus": gpus, "cores": cores}
            nominal |= {"a100": gpus // 2, "h100": gpus // 2} if prefers else {}
            more: dict[str, Any] = {"preferences": {**PREFERENCES, "whenCanBorrow": when}} if prefers else {}
            quotas = [{"meter": meter, "nominal": amount} for meter, amount in nominal.items()]
            builder.queue(name, quotas=quotas, **more)
        super().__init__(builder.snapshot())
        self.random = random
        self.whole = dict(self._rest.slices)
        self.jobs = 0

    def happen(self, ledger: in_memory.Ledger) -> None:
        """Let one thing happen."""
        self.random.choice(HAPPENINGS)(self, ledger)

    def arrive(self, _: in_memory.Ledger) -> None:
        self.jobs += 1
        pods, gpus = self.random.randint(1, 4), self.random.choice((0, 0, 1, 1, 2, 4))
        cpu = self.random.choice(("1", "1500m", "3"))
        made = self.random.choice((pods, pods, pods, pods - 1))
        builder = a_cluster()
        builder._minutes = self.jobs
        queue = self.random.choice(QUEUES)
        least: dict[str, str] = self.random.choice(({}, {}, {GANG_MIN: "1"}, {GANG_MIN: "2"}))
        builder.job(f"job-{self.jobs}", queue=queue, pods=pods, gpus=gpus, made=made, annotations=least, cpu=cpu)
        more = builder.snapshot()
        self._pods |= more.pods
        self._jobs |= more.jobs
        # Some claims come later than their pods, as in life.
        self._claims |= {key: claim for key, claim in more.claims.items() if self.random.random() < 0.9}

    def run(self, ledger: in_memory.Ledger) -> None:
        self.schedule(ledger.book)

    def end(self, _: in_memory.Ledger) -> None:
        running = sorted((pod for pod in self._pods.values() if pod.phase == "Running"), key=lambda pod: pod.meta.key)
        if running:
            self.finish([self.random.choice(running)])

    def delete(self, _: in_memory.Ledger) -> None:
        waiting = sorted(uid for uid, pod in self._pods.items() if pod.gated)
        if waiting:
            self._release_claims([self._pods.pop(self.random.choice(waiting))])

    def resize(self, _: in_memory.Ledger) -> None:
        pod = self._pods.get(self.random.choice(sorted(self._pods) or [Uid("")]))
        if pod is not None:
            self._pods[pod.meta.uid] = replace(pod, requests={**pod.requests, "cpu": self.random.randint(1, 4) * 750})

    def break_devices(self, _: in_memory.Ledger) -> None:
        key = self.random.choice(sorted(self.whole))
        left = self.whole[key].devices[self.random.randint(0, 2) :]
        changed = replace(self.whole[key], devices=left)
        self._rest = replace(self._rest, slices={**self._rest.slices, key: changed})

    def mend_devices(self, _: in_memory.Ledger) -> None:
        self._rest = replace(self._rest, slices=dict(self.whole))

    def cordon(self, _: in_memory.Ledger) -> None:
        name = self.random.choice(sorted(self._rest.nodes))
        node = self._rest.nodes[name]
        changed = replace(node, unschedulable=not node.unschedulable)
        self._rest = replace(self._rest, nodes={**self._rest.nodes, name: changed})

    def change_queue(self, _: in_memory.Ledger) -> None:
        queue = self._rest.queues[QueueName(self.random.choice(QUEUES))]
        quotas = tuple(replace(quota, nominal=self.random.randint(0, 10)) for quota in queue.quotas)
        strategy = self.random.choice(list(QueueingStrategy))
        changed = replace(queue, quotas=quotas, strategy=strategy)
        self._rest = replace(self._rest, queues={**self._rest.queues, queue.name: changed})

    def change_meters(self, _: in_memory.Ledger) -> None:
        changed: dict[MeterName, Meter] = {name: replace(one) for name, one in self._rest.meters.items()}
        self._rest = replace(self._rest, meters=changed)

    def as_it_is(self) -> Snapshot:
        return self.snapshot()


HAPPENINGS: tuple[Callable[[Town, in_memory.Ledger], None], ...] = (
    *(Town.arrive,) * 4,
    *(Town.run,) * 3,
    Town.end,
    Town.end,
    Town.delete,
    Town.resize,
    Town.break_devices,
    Town.mend_devices,
    Town.cordon,
    Town.change_queue,
    Town.change_meters,
)


def a_leader(cluster: in_memory.Cluster, ledger: in_memory.Ledger) -> Leader:
    ports = Ports(
        view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=ledger, queues=cluster
    )
    return Leader.build(ports=ports, actor="test", epoch=1)


def afresh(town: Town, ledger: in_memory.Ledger, known: Leader) -> Leader:
    """A leader that begins now, with copies of the cluster and the books, and what no view shows."""
    leader = a_leader(in_memory.Cluster(town.as_it_is()), in_memory.Ledger(ledger.book))
    leader.queues._queues, leader.queues._gone = known.queues._queues, known.queues.gone
    know(leader, known)
    return leader


def know(leader: Leader, known: Leader) -> None:
    """Have a leader know what another one does, and no view or ledger shows."""
    leader.evictions._backoffs, leader.evictions._vacancies = dict(known.evictions.backoffs), known.evictions.vacancies
    leader.in_flight._opened, leader.in_flight._leaving = {*known.in_flight.opened}, {*known.in_flight.leaving}


def told(leader: Leader, result: CycleResult) -> dict[str, object]:
    """What was decided, with the reasons, and the order of what was granted."""
    held = {uid: _reason(decision) for uid, decision in leader.statuses.decisions.items()}
    places = {uid: decision.position for uid, decision in leader.statuses.decisions.items()}
    phases = {gang.uid: (gang.phase, gang.charges, gang.plan) for gang in result.gangs}
    # A gang that fits no empty cluster is not starved, and whether it fits one may be found later, as for `_reason`.
    queues = [replace(queue, starved=0) for queue in result.queues]
    return {"granted": result.granted, "held": held, "places": places, "phases": phases, "queues": queues}


def outcomes(leader: Leader) -> dict[str, object]:
    """Why every gang waits, in full."""
    return {uid: decision.outcome for uid, decision in leader.statuses.decisions.items()}


def _reason(decision: Decision) -> str:
    """Why a gang waits. Whether an empty cluster would do is found anew when nothing else changes."""
    reason = decision.outcome.reason if not isinstance(decision.outcome, Grant) else ""
    return "no devices" if reason in {HoldReason.DEVICES_BUSY, HoldReason.NO_FEASIBLE_PLACEMENT} else reason


@settings(max_examples=soaking.examples(15), deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 25), st.booleans())
@example(507859, 5, False)  # devices go from one gang to another between two cycles
@example(25, 5, False)  # a gang is held for its placement before that no empty cluster has one is found
def test_caches_make_no_difference_to_decisions(seed: int, length: int, prefers: bool) -> None:
    async def live() -> None:
        town = Town(Random(seed), prefers=prefers)  # noqa: S311 - not for secrets
        ledger = in_memory.Ledger()
        leader = a_leader(town, ledger)
        now = NOON
        for _ in range(length):
            for _ in range(town.random.randint(0, 3)):
                town.happen(ledger)
            now += timedelta(seconds=1)
            new = afresh(town, ledger, leader)
            result = await cycle.run(leader, now)
            assert told(leader, result) == told(new, await cycle.run(new, now))
        for _ in range(20):
            await cycle.run(leader, now)
        new = afresh(town, ledger, leader)
        assert (await cycle.run(leader, now)).queues == (await cycle.run(new, now)).queues
        assert outcomes(leader) == outcomes(new)

    asyncio.run(live())


@settings(max_examples=soaking.examples(15), deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 25))
def test_what_pods_request_of_nodes_is_in_the_books_while_they_hold_it(seed: int, length: int) -> None:
    """Not more than the quota is granted, unless a pod was resized or the quota lowered; nothing is left in the end."""

    async def live() -> None:
        town = Town(Random(seed))  # noqa: S311 - not for secrets
        ledger = in_memory.Ledger()
        leader = a_leader(town, ledger)
        now, calm = NOON, (Town.arrive, Town.run, Town.end, Town.delete, Town.cordon)
        for _ in range(length):
            town.random.choice(calm)(town, ledger)
            now += timedelta(seconds=1)
            await cycle.run(leader, now)
            assert cores(ledger) == {queue: sum(held) for queue, held in holders(town, ledger).items()}
            assert all(used <= {"q": 12, "r": 6}[queue] for queue, used in cores(ledger).items())
        for _ in range(length):
            town.happen(ledger)
            now += timedelta(seconds=1)
            await cycle.run(leader, now)
        town._pods.clear()
        town._claims.clear()
        for _ in range(3):
            await cycle.run(leader, now)
        assert not ledger.book.placements
        assert not any(cores(ledger).values())

    asyncio.run(live())


def cores(ledger: in_memory.Ledger) -> dict[str, int]:
    return {queue: sum(use[CORES.name]) for queue, use in ledger.book.usage().items() if CORES.name in use}


def holders(town: Town, ledger: in_memory.Ledger) -> dict[str, list[int]]:
    """Return the whole cores of every pod with a seat in the books, by queue."""
    found: dict[str, list[int]] = {}
    for placement in ledger.book.placements.values():
        for uid in placement.seats:
            found.setdefault(placement.queue, []).append(-(-town._pods[uid].requests["cpu"] // 1000))
    return found


def everything(town: Town, ledger: in_memory.Ledger) -> tuple[object, ...]:
    """What anybody could have written."""
    reports = dict(town.gangs), dict(town.queues), list(town.condition_reports), list(town.notices)
    return town.snapshot(), tuple(ledger.entries), reports


@given(st.integers(0, 10**6), st.integers(1, 15))
def test_preloading_makes_no_difference_to_the_decisions_of_a_new_leader(seed: int, length: int) -> None:
    async def live() -> None:
        town = Town(Random(seed))  # noqa: S311 - not for secrets
        ledger = in_memory.Ledger()
        leader, standby = a_leader(town, ledger), a_leader(town, ledger)
        now = NOON
        for _ in range(length):
            for _ in range(town.random.randint(0, 3)):
                town.happen(ledger)
            now += timedelta(seconds=1)
            await cycle.run(leader, now)
            if town.random.random() < 0.5:
                written = everything(town, ledger)
                await cycle.preload(standby, now)
                assert everything(town, ledger) == written
        cold = afresh(town, ledger, leader)
        copy = afresh(town, ledger, leader)
        standby = replace(standby, ports=copy.ports)
        standby.mirror._ledger = standby.mirror._usage._ledger = copy.ports.ledger
        know(standby, cold)
        assert told(standby, await cycle.run(standby, now)) == told(cold, await cycle.run(cold, now))

    asyncio.run(live())


def test_whether_a_gang_ever_fits_does_not_depend_on_what_was_found_of_it() -> None:
    """A gang of which it is proved that there is no plan now is not checked again for the time after all known ends."""
    find, asked = NeverFits._find_never_fits, Counter[str]()

    def both(known: NeverFits, inputs: Inputs, verdict: Verdict) -> bool:
        asked[verdict.by] += 1
        found = find(known, inputs, verdict)
        assert found == find(NeverFits(known.present), inputs, replace(verdict, by=""))
        return found

    async def live(seed: int) -> None:
        town, ledger = Town(Random(seed)), in_memory.Ledger()  # noqa: S311 - not for secrets
        leader = a_leader(town, ledger)
        for at in range(30):
            town.happen(ledger)
            town.happen(ledger)
            await cycle.run(leader, NOON + timedelta(minutes=at))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NeverFits, "_find_never_fits", both)
        for seed in range(2):
            asyncio.run(live(seed))
    assert asked[PROOF] > 0
