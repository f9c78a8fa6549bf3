"""The webhook answers the API server while 1,500 others hold connections and bodies, and its memory stays small."""

import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from admission.webhook import path_segments
from tests.bench import cluster, flood
from tests.integration import serving
from tests.integration.serving import eventually

SECONDS = 8.0
"""Longer than any deadline, so that those who are closed come again."""


@pytest.mark.parametrize("kind", flood.KINDS)
async def test_reviews_go_on_and_memory_stays_small(kind: str) -> None:
    """How long reviews take depends on the machine: `python -m tests.bench flood` has the figures."""
    seen = await flood.held(flood.KINDS[kind], SECONDS)
    sys.stdout.write(json.dumps({kind: seen}, indent=1) + "\n")

    assert seen["unanswered"] == []
    assert seen["reviews"] > 100
    assert seen["resident_mib"] < flood.RESIDENT_GOAL_MIB
    assert bool(seen["refused"]) is bool(flood.KINDS[kind])


async def test_the_paths_that_are_registered_are_answered_and_no_others(tmp_path: Path) -> None:
    review = cluster.reviews("mutate")[0]
    async with serving.muster(tmp_path, **both(tmp_path), linger=0, workers=2) as muster:
        await eventually(muster.is_ready, what="it is ready")
        await eventually(muster.registered, what="it is registered")
        [segment] = path_segments.read(muster.entries())

        assert muster.path("mutate") == f"/{segment.text}/mutate"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=muster.trusted())) as session:
            for path, status in {muster.path("mutate"): 200, "/mutate": 404, f"/{'0' * 40}/mutate": 404}.items():
                async with session.post(f"https://127.0.0.1:{muster.port}{path}", json=review) as response:
                    assert response.status == status, path

        await eventually(lambda: _refused(muster, "path", 2), what="both are counted, whichever worker refused them")
        assert segment.text not in muster.words
        assert segment.text not in (await muster.get("/metrics"))[1]


async def test_a_cluster_of_an_earlier_muster_keeps_its_plain_paths_until_all_know_the_segment(tmp_path: Path) -> None:
    """A day of an authority is a thirtieth of a month, so here it is a fraction of a second."""
    plain = {"name": "x", "clientConfig": {"url": "https://127.0.0.1:1/mutate"}}
    async with serving.muster(
        tmp_path,
        registered={"metadata": {"name": "muster"}, "webhooks": [plain]},
        **both(tmp_path),
        linger=0,
        authority_days=SECONDS * 30 / 86_400,
        leaf_hours=SECONDS * 30 / 3_600 / 8,
    ) as muster:
        await eventually(muster.is_ready, what="it is ready")
        await eventually(lambda: _names(muster, "https://127.0.0.1:%d/mutate"), what="plain paths stay registered")
        assert await muster.review(cluster.reviews("mutate")[0]) == 200

        await eventually(lambda: _is_secret(muster), what="the segment is registered")
        assert await muster.review(cluster.reviews("mutate")[0]) == 200


def both(folder: Path) -> dict[str, Any]:
    """Return the arguments of a Muster that registers the webhook and is it."""
    ledger = {"url": f"sqlite:///{folder / 'ledger.sqlite3'}"}
    return {"roles": ("webhook", "controller"), "ledger": ledger, "authorities": False, "register": True}


async def _refused(muster: serving.Muster, reason: str, number: int) -> bool:
    return await muster.counted("muster_webhook_refused_total", reason=reason) == number


async def _names(muster: serving.Muster, url: str) -> bool:
    hooks = muster.api.objects[serving.MUTATING]["muster"]["webhooks"]
    return any(hook["clientConfig"]["url"] == url % muster.port for hook in hooks)


async def _is_secret(muster: serving.Muster) -> bool:
    return muster.path("mutate") != "/mutate"
