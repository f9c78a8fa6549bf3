"""Reports that are written beside the cycles: the latest of each object, once."""

import asyncio
from dataclasses import replace

import pytest

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.status_reports import EventType, Notice, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import EventReason
from admission.controller import status_writer
from admission.controller.status_writer import MOST_NOTICES, StatusWriter
from admission.errors import RetryError
from admission.simulation import in_memory


class Cluster(in_memory.Cluster):
    """Counts what is written, and can refuse."""

    def __init__(self) -> None:
        super().__init__(Snapshot())
        self.written: list[tuple[str, Phase]] = []
        self.refuse = False

    async def gang(self, report: GangReport) -> None:
        if self.refuse:
            raise RetryError("busy")
        self.written.append((report.name, report.phase))


def a_report(name: str = "train", phase: Phase = Phase.PENDING) -> GangReport:
    return GangReport(uid=GangUid(name), namespace="team", name=name, queue=QueueName("q"), size=1, phase=phase)


async def test_of_each_object_only_the_latest_report_is_written() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster)

    for phase in (Phase.PENDING, Phase.RESERVED, Phase.RUNNING):
        await outbox.gang(a_report(phase=phase))
    await outbox.gang(a_report("other"))
    await outbox.flush()

    assert sorted(cluster.written) == [("other", Phase.PENDING), ("train", Phase.RUNNING)]


async def test_an_unchanged_status_is_not_written_again() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster)

    for _ in range(3):
        await outbox.gang(a_report())
        await outbox.flush()

    assert len(cluster.written) == 1


async def test_a_status_that_failed_to_write_is_written_when_reported_again() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster)
    cluster.refuse = True
    await outbox.gang(a_report())
    await outbox.flush()

    cluster.refuse = False
    await outbox.gang(a_report())
    await outbox.flush()

    assert cluster.written == [("train", Phase.PENDING)]


async def test_the_status_writer_writes_in_its_own_loop_and_forgets_reports_after_a_while() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster, pause=0.0, settle=0.0, forget_after=0.0)
    running = asyncio.ensure_future(outbox.run())

    async with asyncio.timeout(30):
        while len(cluster.written) < 2:
            await outbox.gang(a_report())
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert set(cluster.written) == {("train", Phase.PENDING)}


@pytest.mark.parametrize(
    ("phases", "written"),
    {
        "a gang that runs soon is told once": ((Phase.PENDING, Phase.RESERVED, Phase.RUNNING), [Phase.RUNNING]),
        "one that stays on its way is told after a while": ((Phase.PENDING, Phase.RESERVED), []),
        "one that has ended meanwhile is told, too": ((Phase.PENDING, Phase.FINISHED), [Phase.FINISHED]),
        "what a gang waits for is told at once": ((Phase.EVICTED,), [Phase.EVICTED]),
    }.values(),
)
async def test_the_status_of_a_gang_on_its_way_waits_for_the_next_one(
    phases: tuple[Phase, ...], written: list[Phase]
) -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster, pause=0.0, settle=60.0)
    running = asyncio.ensure_future(outbox.run())
    await outbox.notify(_notice("train", kind="Gang", uid=""))

    for phase in phases:
        await outbox.gang(a_report(phase=phase))
        for _ in range(20):
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert [phase for _, phase in cluster.written] == written
    assert len(cluster.notices) == len(written), "an Event on its Gang waits for the Gang"


async def test_a_gang_that_came_and_went_between_two_writes_is_recorded_once() -> None:
    told: list[tuple[Phase, bool]] = []

    class Records(Cluster):
        async def gang(self, report: GangReport) -> None:
            told.append((report.phase, report.had_pods))

    outbox = StatusWriter(Records())
    for report in (replace(a_report(), pods=1), a_report(phase=Phase.RUNNING), a_report(phase=Phase.FINISHED)):
        await outbox.gang(report)
    await outbox.flush()
    await outbox.gang(a_report(phase=Phase.FINISHED))
    await outbox.gang(a_report("old", phase=Phase.FINISHED))
    await outbox.flush()

    assert told == [(Phase.FINISHED, True), (Phase.FINISHED, False)]


async def test_the_numbers_of_a_gang_in_one_state_are_written_now_and_then() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster, pause=0.0, settle=60.0)
    running = asyncio.ensure_future(outbox.run())
    for pods in (4, 3, 2):
        await outbox.gang(replace(a_report(phase=Phase.RUNNING), pods=pods))
        for _ in range(20):
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert cluster.written == [("train", Phase.RUNNING)]


async def test_a_gang_that_stays_on_its_way_is_written_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = [0.0], list[tuple[float, int]]()

    class Clocked(Cluster):
        async def gang(self, report: GangReport) -> None:
            written.append((now[0], report.pods))

    monkeypatch.setattr(status_writer, "_now", lambda: now[0])
    outbox = StatusWriter(Clocked(), settle=3.0, forget_after=1000.0)
    for second in range(50):
        now[0] = second
        await outbox.gang(replace(a_report(), pods=second))
        await outbox.flush_due()

    assert written == [(at, at) for at in (3, 10, 23, 36, 49)]


@pytest.mark.parametrize(("gangs", "seconds"), [(1, 3), (20, 3), (150, 15), (1000, 30)])
async def test_gangs_on_their_way_wait_the_longer_the_more_there_are(
    gangs: int, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, cluster = [0.0], Cluster()
    monkeypatch.setattr(status_writer, "_now", lambda: now[0])
    outbox = StatusWriter(cluster, settle=3.0, forget_after=1000.0)
    for number in range(gangs):
        await outbox.gang(a_report(f"{number}"))
    await outbox.gang(a_report("last"))
    await outbox.gang(a_report("runs", phase=Phase.RUNNING))

    await outbox.flush_due()
    assert cluster.written == [("runs", Phase.RUNNING)], "what people wait for is written at once"

    now[0] = seconds - 0.01
    await outbox.flush_due()
    assert ("last", Phase.PENDING) not in cluster.written
    now[0] = seconds + 0.01
    await outbox.flush_due()
    assert ("last", Phase.PENDING) in cluster.written


async def test_a_queue_that_changes_all_the_time_is_written_now_and_then() -> None:
    written: list[int] = []

    class Queues(Cluster):
        async def queue(self, report: QueueReport) -> None:
            written.append(report.starved)

    outbox = StatusWriter(Queues(), pause=0.0, settle=60.0)
    running = asyncio.ensure_future(outbox.run())
    for starved in range(3):
        await outbox.queue(QueueReport(name=QueueName("q"), starved=starved))
        for _ in range(20):
            await asyncio.sleep(0)
    assert written == [0]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    await outbox.flush()
    assert written == [0, 2]


async def test_a_deleted_gang_object_is_written_again_though_its_report_has_not_changed() -> None:
    """Quiet: the deleted object's report stays the same, so nothing but time can bring it back."""
    cluster = Cluster()
    outbox = StatusWriter(cluster, forget_after=0.0)

    for _ in range(2):
        await outbox.gang(a_report())
        await outbox.flush()

    assert len(cluster.written) == 2


async def test_a_flood_of_events_costs_bounded_memory() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster)

    for number in range(MOST_NOTICES + 5):
        await outbox.notify(_notice(f"pod-{number}"))
    await outbox.flush()

    assert len(cluster.notices) == MOST_NOTICES
    assert cluster.notices[0].name == "pod-5"


async def test_an_event_on_a_gang_without_an_object_waits_until_its_report_is_written() -> None:
    cluster = Cluster()
    outbox = StatusWriter(cluster)

    await outbox.notify(_notice("train", kind="Gang", uid=""))
    await outbox.notify(_notice("other", kind="Gang", uid=""))
    await outbox.notify(_notice("heads", kind="ConfigMap", uid=""))
    await outbox.flush()
    assert [notice.name for notice in cluster.notices] == ["heads"]

    await outbox.gang(a_report())
    await outbox.flush()
    assert [notice.name for notice in cluster.notices] == ["heads", "train"]


def _notice(name: str, *, kind: str = "Pod", uid: str = "known") -> Notice:
    return Notice(
        api_version="v1",
        kind=kind,
        namespace="team",
        name=name,
        uid=Uid(uid),
        type=EventType.NORMAL,
        reason=EventReason.ADMITTED,
        message="it may start",
    )


async def test_a_slow_status_write_does_not_overwrite_a_later_report() -> None:
    """What is remembered of an eviction is written at once, while the reports of the last cycle are on their way."""

    class Slow(Cluster):
        async def gang(self, report: GangReport) -> None:
            if report.phase is Phase.RESERVED:
                await answered.wait()
            await super().gang(report)

    answered = asyncio.Event()
    cluster = Slow()
    outbox = StatusWriter(cluster)
    await outbox.gang(a_report(phase=Phase.RESERVED))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.flush())
        await asyncio.sleep(0)
        await outbox.gang(a_report(phase=Phase.EVICTED))
        tasks.create_task(outbox.flush())
        for _ in range(5):
            await asyncio.sleep(0)
        answered.set()

    assert [phase for _, phase in cluster.written] == [Phase.RESERVED, Phase.EVICTED]
