"""A month of books: a simulated history, its report, and the proof that a row that was tampered with is found.

The history is made by the cycle that the controller runs, on a cluster in memory, a clock that jumps from one event to
the next, and a ledger in a real file.
"""

import asyncio
import heapq
import itertools
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.ledger.db import migrations
from admission.ledger.sql_ledger import SqlLedger
from admission.simulation import in_memory
from tests.builders import ClusterBuilder, a_cluster
from tests.demo.telling import StoryError, Teller

START, END = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
PEOPLE = {"vision": ("ana", "bo"), "language": ("chen", "dora")}
FILE = "month.sqlite3"
BROKEN = 3
"""Exit code of `muster ledger verify` for books that are not what was written."""

Event = tuple[datetime, int, str, object]


@dataclass(slots=True)
class Month:
    """The cluster of the month, and what is still to come."""

    leader: Leader
    cluster: "Lab"
    end: datetime = END
    chance: random.Random = field(default_factory=lambda: random.Random(31))  # noqa: S311 - a history, not a secret
    events: list[Event] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    wakes: datetime = START
    jobs: int = 0

    async def pass_by(self) -> None:
        """Let everything happen that happens until the month ends."""
        self._arrive_later(START)
        while self.events and self.events[0][0] < self.end:
            at, _, kind, what = heapq.heappop(self.events)
            if kind == "arrival":
                self._arrive(at)
            elif kind == "end" and isinstance(what, frozenset):
                self.cluster.end(what)
            await self._look(at)

    async def _look(self, at: datetime) -> None:
        """Run a cycle; kube-scheduler starts what it let in, and the next one settles that a few seconds later."""
        result = await cycle.run(self.leader, at)
        started = self.cluster.schedule(self.leader.mirror.book)
        for gang in result.granted:
            pods = frozenset(self.leader.mirror.book.placements[gang].seats)
            self._later(at + self._runtime(gang), "end", pods)
        if started:
            self._later(at + timedelta(seconds=4), "settle", None)
        if result.next_try is not None and not at < self.wakes <= result.next_try:
            self.wakes = result.next_try
            self._later(result.next_try, "wake", None)

    def _arrive(self, at: datetime) -> None:
        team = self.chance.choice(sorted(PEOPLE))
        self.jobs += 1
        pods, gpus = self.chance.choice(((1, 1), (1, 4), (2, 2), (2, 4), (4, 2)))
        person = self.chance.choice(PEOPLE[team])
        self.cluster.submit(f"{team}-{self.jobs}", team, pods=pods, gpus=gpus, person=person, at=at)
        self._arrive_later(at)

    def _arrive_later(self, at: datetime) -> None:
        self._later(at + timedelta(seconds=round(self.chance.expovariate(1 / 14_000)) + 1), "arrival", None)

    def _later(self, at: datetime, kind: str, what: object) -> None:
        heapq.heappush(self.events, (at, next(self.numbers), kind, what))

    def _runtime(self, gang: GangUid) -> timedelta:
        return timedelta(seconds=round(random.Random(gang).lognormvariate(9.2, 1.0)) + 60)  # noqa: S311 - the same


class Lab(in_memory.Cluster):
    """Two teams and four nodes with four GPUs each."""

    def __init__(self) -> None:
        builder = a_cluster()
        for node in ("node-1", "node-2", "node-3", "node-4"):
            builder.node(node, gpus=4)
        for team in PEOPLE:
            builder.queue(team, gpus=8, parent="lab")
        super().__init__(builder.queue("lab", gpus=0, claims=0).snapshot())

    def submit(self, job: str, team: str, *, pods: int, gpus: int, person: str, at: datetime) -> None:
        more = _a_job(job, team, pods=pods, gpus=gpus, person=person).snapshot()
        self._pods |= {uid: replace(pod, meta=_made(pod.meta, at)) for uid, pod in more.pods.items()}
        self._claims |= more.claims
        self._jobs |= {uid: replace(one, meta=_made(one.meta, at)) for uid, one in more.jobs.items()}

    def end(self, pods: Collection[Uid]) -> None:
        """Let pods succeed; their Job is cleaned away with them, as ttlSecondsAfterFinished does."""
        ended = [self._pods[uid] for uid in pods if uid in self._pods]
        self.finish(ended)
        for pod in ended:
            del self._pods[pod.meta.uid]
            if pod.meta.controller is not None:
                self._jobs.pop(pod.meta.controller.uid, None)


def _a_job(job: str, team: str, *, pods: int, gpus: int, person: str) -> ClusterBuilder:
    return a_cluster().job(job, queue=team, pods=pods, gpus=gpus, annotations={names.USER: person})


def _made(meta: Meta, at: datetime) -> Meta:
    return replace(meta, created=at)


async def write(file: Path, days: int) -> int:
    """Write the books of the month's first days into a file; return how many Jobs were submitted."""
    url = f"sqlite:///{file}"
    await migrations.migrate(url)
    async with SqlLedger.open(url, "demo") as ledger:
        await ledger.fence(1)
        lab = Lab()
        ports = Ports(view=lab, pods=lab, claims=lab, workloads=lab, reports=lab, ledger=ledger)
        leader = Leader.build(ports=ports, actor="muster", epoch=1)
        month = Month(leader=leader, cluster=lab, end=START + timedelta(days=days))
        await month.pass_by()
        return month.jobs


def tamper(file: Path) -> int:
    """Make one settlement of the file cheaper, past its triggers; return the number of the transaction."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        of_gpus = "bucket = 'used' AND meter = 'gpus'"
        (sequence,) = connection.execute(
            f"SELECT sequence FROM postings WHERE {of_gpus} AND amount = '4' ORDER BY sequence LIMIT 1 OFFSET 20"  # noqa: S608
        ).fetchone()
        connection.execute(f"UPDATE postings SET amount = '1' WHERE {of_gpus} AND sequence = ?", (sequence,))  # noqa: S608
        return int(sequence)


@asynccontextmanager
async def written(folder: Path, days: int = (END - START).days) -> AsyncIterator[Awaitable[int]]:
    """Write the books of the month's first days in a process of its own; yield the number of Jobs to be."""
    words = (sys.executable, "-m", "tests.demo.month", str(folder / FILE), str(days))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        yield _jobs(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _jobs(process: asyncio.subprocess.Process) -> int:
    output, _ = await process.communicate()
    if process.returncode:
        raise StoryError(f"the month could not be simulated: it ended with {process.returncode}")
    return int(output)


async def tell(teller: Teller, folder: Path, jobs: Awaitable[int]) -> None:
    """Show the report of the month, and that the books prove themselves. Raises StoryError when they do not."""
    file = folder / FILE
    options = f"--database sqlite:///{file} --cluster demo"
    month = f"--from {START:%Y-%m-%d} --to {END:%Y-%m-%d}"
    teller.heading("6. A month later: who used which devices for how long")
    count = await jobs
    teller.say(
        f"October was simulated meanwhile, with the cycle of the controller and a clock that jumps: {count} Jobs of two"
        " teams on four nodes with four GPUs each."
    )
    await teller.run(f"ledger report --by queue,user {month} {options}", f"ledger verify {options}", env={})
    teller.heading("7. Somebody makes one settlement cheaper, past the triggers, and is found out")
    sequence = tamper(file)
    output = await teller.run_wrong(f"ledger verify {options}", code=BROKEN, env={})
    if f"transaction {sequence}" not in output:
        raise StoryError(f"transaction {sequence} was changed, and `muster ledger verify` does not name it: {output}")


if __name__ == "__main__":
    print(asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2]))))
