"""Where nothing changes any more, reserved starts come to rest, whatever queues keep for gangs that wait."""

import asyncio
from random import Random
from typing import Any

import pytest

from tests import soaking
from tests.builders import a_cluster
from tests.unit.cycle.jobs import Jobs, Play

WALKS = 200 if soaking.is_on() else 8
STEPS = 10
REST = 6
"""Quiet cycles after which no start may change."""


@pytest.mark.parametrize("number", range(WALKS))
def test_reserved_starts_come_to_rest(number: int) -> None:
    asyncio.run(walk(Random(f"rest {number}")))  # noqa: S311 - no secrets


async def walk(random: Random) -> None:
    cluster = Jobs(town(random))
    run = Play(cluster)
    for step in range(STEPS):
        running = sorted(cluster.running())
        if running and random.random() < 0.2:
            cluster.finish_job(random.choice(running))
        queue, gpus = random.choice(("x", "y", "z")), random.choice((1, 1, 2, 3, 4))
        declared: dict[str, Any] = {"annotations": {"muster.dev/runtime": f"{random.choice((10, 20, 30))}h"}}
        priority = random.choice((0, 0, 1, 9))
        cluster.submit(f"j{step}", queue=queue, gpus=gpus, priority=priority, **random.choice((declared, declared, {})))
        await run.forget_changes(REST)
        seen = starts(run)
        for _ in range(3):
            await run.forget_changes(1)
            assert starts(run) == seen


def town(random: Random) -> Any:
    builder = a_cluster().node("a", gpus=random.choice((6, 8, 12))).queue("top", gpus=random.choice((0, 1)))
    fair: dict[str, Any] = {"fairSharing": {"weight": 1}} if random.random() < 0.3 else {}
    for name in ("x", "y", "z"):
        builder.queue(name, gpus=random.choice((0, 2, 3, 4)), parent="top", **fair)
    return builder


def starts(run: Play) -> dict[str, Any]:
    backfill = run.leader.backfill
    return {uid: one.at for uid, one in backfill.estimates.items()} | {"dropped": backfill.revision}
