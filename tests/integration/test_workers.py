"""Several workers on one port: both answer, one is killed and comes back, and all of them end together."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.bench import cluster
from tests.integration import serving
from tests.integration.serving import Muster, eventually

REVIEWS = 40
"""Enough that each of two workers is sent one: by chance alone, one of them none once in 2^40 times."""


LINGER = 5.0
"""Seconds: enough to be seen on a busy machine."""


def review() -> dict[str, Any]:
    return cluster.reviews("mutate")[0]


async def both_have_answered(muster: Muster) -> bool:
    counts = [await muster.counted("muster_review_seconds_count", worker=worker) for worker in ("1", "2")]
    return min(counts) > 0


async def test_two_workers_answer_and_are_counted_on_one_page(tmp_path: Path) -> None:
    async with serving.muster(tmp_path, workers=2, linger=0) as muster:
        await eventually(muster.is_ready, what="both workers are ready")
        assert await muster.counted("muster_webhook_workers") == 2

        assert [await muster.review(review()) for _ in range(REVIEWS)] == [200] * REVIEWS

        await eventually(lambda: both_have_answered(muster), what="both have answered")
        assert await muster.counted("muster_review_seconds_count", door="mutate") <= REVIEWS
        for _ in range(REVIEWS // 2):
            assert await muster.get("/readyz", shared=True) == (200, "ok\n")


async def test_a_worker_that_is_killed_comes_back_and_new_connections_are_answered_meanwhile(tmp_path: Path) -> None:
    async with serving.muster(tmp_path, workers=2, linger=0) as muster:
        await eventually(muster.is_ready, what="both workers are ready")
        [worker] = muster.workers

        serving.kill(worker)
        await eventually(lambda: asyncio.to_thread(serving.is_gone, worker), what="the worker is gone")
        failed = 0
        while await muster.counted("muster_webhook_workers_lost_total") == 0:
            failed += await _fails(muster)
        while await muster.counted("muster_webhook_workers") < 2:
            assert await muster.review(review()) == 200
            assert (await muster.get("/readyz"))[0] == 200

        assert failed <= 1
        assert muster.workers != [worker]
        assert "a worker has ended, and is started again" in muster.words


async def test_all_workers_drain_when_the_first_is_terminated(tmp_path: Path) -> None:
    async with serving.muster(tmp_path, workers=3, linger=LINGER) as muster:
        await eventually(muster.is_ready, what="all workers are ready")
        workers = muster.workers
        assert len(workers) == 2

        muster.process.send_signal(signal.SIGTERM)
        await eventually(lambda: _is_unready(muster), what="it is unready")
        assert [await muster.review(review()) for _ in range(5)] == [200] * 5
        await asyncio.wait_for(muster.process.wait(), 60)

        assert muster.process.returncode == 0, muster.words
        assert all(serving.is_gone(worker) for worker in workers)
        assert not serving.is_heard(muster.port)


async def test_no_worker_outlives_the_first_process(tmp_path: Path) -> None:
    async with serving.muster(tmp_path, workers=2, linger=0) as muster:
        await eventually(muster.is_ready, what="both workers are ready")
        [worker] = muster.workers

        serving.kill(muster.process.pid)

        await eventually(lambda: asyncio.to_thread(serving.is_gone, worker), what="the worker has ended")
        assert "the first of the workers is gone" in muster.words


async def test_a_port_that_is_taken_is_not_shared_with_a_stranger(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with serving.muster(tmp_path, workers=2, linger=0) as muster:
        await eventually(muster.is_ready, what="both workers are ready")

        async with serving.muster(tmp_path / "other", workers=2, linger=0, port=muster.port) as other:
            code = await asyncio.wait_for(other.process.wait(), 60)

        assert code == 2
        assert "another program listens there; stop it, or choose another webhook.port" in other.words


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
async def test_a_single_process_lingers_when_terminated(tmp_path: Path, signal_: signal.Signals) -> None:
    async with serving.muster(tmp_path, linger=LINGER) as muster:
        await eventually(muster.is_ready, what="it is ready")

        muster.process.send_signal(signal_)
        await eventually(lambda: _is_unready(muster), what="it is unready")

        assert await muster.review(review()) == 200
        await asyncio.wait_for(muster.process.wait(), 60)
        assert muster.process.returncode == 0, muster.words


async def _is_unready(muster: Muster) -> bool:
    return await muster.get("/readyz") == (503, "waiting: the server is stopping\n")


async def _fails(muster: Muster) -> bool:
    try:
        return await muster.review(review()) != 200
    except aiohttp.ClientConnectionError:
        return True


async def test_settings_that_change_are_taken_up_by_all_workers(tmp_path: Path) -> None:
    async with serving.muster(tmp_path, workers=2, linger=0) as muster:
        await eventually(muster.is_ready, what="both workers are ready")
        config = tmp_path / "muster.toml"

        config.write_text(f'log_level = "debug"\n{config.read_text()}')
        muster.process.send_signal(signal.SIGHUP)

        await eventually(lambda: _have_heard(muster, 2), what="both have heard")


async def _have_heard(muster: Muster, workers: int) -> bool:
    return muster.words.count("settings have changed") == workers
