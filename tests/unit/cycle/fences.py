"""A cluster in memory whose devices are Muster's alone to give, and that notes the order of what is done to it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from admission import default_ports
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport
from admission.api.muster.ledger_entries import Kind
from admission.api.values.decoding import Json
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.ports import Ledger
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from admission.status.idle_gangs import IdleGangs
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster

LONG_AGO = NOON - timedelta(hours=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
Q, GPUS = QueueName("q"), MeterName("gpus")


def fence(since: datetime | None = LONG_AGO) -> Barriers:
    """What is seen of a fence around the devices of the builders; with None, of one that is not there."""
    rules = {CLASS: since} if since is not None else {}
    return Barriers(fence=(CLASS,), rules=rules, policy=since)


class Cluster(in_memory.Cluster):
    """Notes every write that places a gang; claims and pods named in `fails` raise instead."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder.snapshot())
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}
        self._claims = {
            key: replace(claim, meta=replace(claim.meta, resource_version="1")) for key, claim in self._claims.items()
        }

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        self._call("open", pod.meta.name)
        await super().open_gate(pod, node)

    async def close_gate(self, pod: Pod) -> bool:
        self._call("close_gate", pod.meta.name)
        return await super().close_gate(pod)

    async def allocate(self, claim: Claim, allocation: Json) -> Claim:
        self._call("allocate", claim.meta.name)
        return await super().allocate(claim, allocation)

    async def deallocate(self, claim: Claim) -> Claim | None:
        self._call("deallocate", claim.meta.name)
        return await super().deallocate(claim)

    def _call(self, what: str, name: str) -> None:
        error = self.fails.get(f"{what} {name}")
        if error is not None:
            raise error
        self.calls.append(f"{what} {name}")

    def done(self, what: str) -> list[str]:
        """Return what this was done to, in order."""
        return [call.removeprefix(f"{what} ") for call in self.calls if call.startswith(f"{what} ")]

    def devices(self) -> dict[str, list[str]]:
        """Return the devices of every claim that has some, by its name."""
        return {
            claim.meta.name: [f"{one.device.pool}/{one.device.device}" for one in claim.allocation.devices]
            for claim in self._claims.values()
            if claim.allocation is not None
        }

    def let_in(self) -> list[str]:
        return sorted(pod.meta.name for pod in self._pods.values() if not pod.gated)

    def pod(self, name: str) -> Pod:
        return self._pods[Uid(f"pod-{name}")]

    def change_claim(self, name: str, **changes: Any) -> None:
        """Change a claim as others do: what Muster has seen of it is out of date."""
        known = self._claims[f"team/{name}"]
        meta = self._marked(known.meta, "changed")
        left = {**known.meta.annotations}
        self._claims[f"team/{name}"] = replace(known, meta=replace(meta, annotations=left), **changes)

    def remove_claim(self, name: str) -> None:
        del self._claims[f"team/{name}"]

    def remove_pod(self, name: str) -> None:
        """Delete a pod, and what was made for it."""
        self._release_claims([self._pods.pop(Uid(f"pod-{name}"))])

    def without(self, *, node: str = "", device: str = "") -> None:
        """Lose a node with its slice, or a device from its slice."""
        slices = {
            key: replace(piece, devices=tuple(one for one in piece.devices if one.name != device))
            for key, piece in self._rest.slices.items()
            if piece.pool != node
        }
        nodes = {name: one for name, one in self._rest.nodes.items() if name != node}
        self._rest = replace(self._rest, nodes=nodes, slices=slices)


class KilledError(Exception):
    """Stands for kill -9."""


class Mortal(Cluster):
    """Its controller dies at the n-th write."""

    def __init__(self, builder: ClusterBuilder, *, lives: int, after: bool) -> None:
        super().__init__(builder)
        self.lives = lives
        self.after = after

    def _call(self, what: str, name: str) -> None:
        self.lives -= 1
        if self.lives < 0 or (self.lives == 0 and not self.after):
            raise KilledError
        super()._call(what, name)


def a_leader(
    cluster: Cluster,
    ledger: Ledger,
    *,
    barriers: Barriers | None = None,
    epoch: int = 1,
    idle: IdleGangs | None = None,
) -> Leader:
    """Return the leader of a leader behind a fence."""
    ports = Ports(
        view=cluster,
        pods=cluster,
        claims=cluster,
        workloads=cluster,
        reports=cluster,
        ledger=ledger,
        fences=default_ports.NoFences(barriers or fence()),
    )
    return Leader.build(ports=ports, actor=f"leader {epoch}", epoch=epoch, idle=idle)


def a_gang(pods: int = 3, **queue: Any) -> ClusterBuilder:
    """A gang of one-GPU pods that fits on two nodes."""
    return (
        a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=8, **queue).job("train", queue="q", pods=pods)
    )


def report(result: CycleResult, name: str = "train") -> GangReport:
    (found,) = [one for one in result.gangs if one.workload is not None and one.workload.name == name]
    return found


def kinds(ledger: in_memory.Ledger) -> list[Kind]:
    return [entry.kind for entry in ledger.entries if entry.kind not in (Kind.GRANT, Kind.USAGE)]


def everything_runs(cluster: Cluster, ledger: in_memory.Ledger, pods: int) -> None:
    """All pods run, on devices of their own, just as the books have it."""
    cluster.schedule(ledger.book)
    running = [pod for pod in cluster.snapshot().pods.values() if pod.phase == "Running"]
    assert len(running) == pods
    given = [device for devices in cluster.devices().values() for device in devices]
    assert len(given) == len(set(given)) == pods


async def cycles(leader: Leader, number: int, at: datetime = NOON) -> CycleResult:
    """Run several cycles and return what the last of them found."""
    result = await cycle.run(leader, at)
    for _ in range(number - 1):
        result = await cycle.run(leader, at)
    return result
