"""When the statuses of gangs are handed over that are what they were: somebody may have written something else."""

import pytest

from admission.api.muster.gangs import GangReport
from admission.cycle import cycle
from admission.cycle.state import status
from admission.simulation import in_memory
from tests.builders import NOON, a_cluster
from tests.unit.cycle.fences import MINUTE, SECOND, Cluster, a_leader

NAMES = ["a", "b", "c", "d", "e"]


class Told(Cluster):
    """Remembers whose statuses were handed over."""

    async def gang(self, report: GangReport) -> None:
        self.calls.append(report.workload.name if report.workload is not None else "")
        await super().gang(report)

    def told(self) -> list[str]:
        """Return who was told of since the last question."""
        found, self.calls = sorted(self.calls), []
        return found


async def test_few_statuses_are_handed_over_again_every_minute_and_each_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "RESYNC_GANGS", 2)
    builder = a_cluster().node("n", gpus=1).queue("q", gpus=0)
    for name in NAMES:
        builder.job(name, queue="q")
    cluster = Told(builder)
    leader = a_leader(cluster, in_memory.Ledger())

    await cycle.run(leader, NOON)
    assert cluster.told() == NAMES
    await cycle.run(leader, NOON + SECOND)
    cluster.told()
    await cycle.run(leader, NOON + 2 * SECOND)
    assert cluster.told() == []

    turns = []
    for minutes in (1, 2, 3):
        await cycle.run(leader, NOON + minutes * MINUTE)
        turns.append(cluster.told())
    assert max(map(len, turns)) == 2
    assert sorted(name for turn in turns for name in turn) == NAMES
