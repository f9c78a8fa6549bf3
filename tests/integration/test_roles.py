"""A controller without a webhook, as a process: its probes and its metrics."""

from pathlib import Path

import aiohttp

from tests.integration import serving
from tests.integration.serving import eventually


async def test_a_controller_alone_has_probes_and_metrics(tmp_path: Path) -> None:
    ledger = {"url": f"sqlite:///{tmp_path / 'ledger.sqlite3'}"}

    async with serving.muster(tmp_path, roles=("controller",), ledger=ledger) as muster:
        await eventually(muster.is_ready, what="the controller is ready", within=200)

        assert await muster.get("/healthz") == (200, "ok\n")
        _, page = await muster.get("/metrics")
        assert {"muster_leading", "muster_cycle_seconds_count"} <= {line.split()[0] for line in page.splitlines()}
        assert not serving.is_heard(muster.port)


async def test_a_controller_whose_ledger_is_away_says_so(tmp_path: Path) -> None:
    ledger = {"url": "postgresql://muster@127.0.0.1:1/muster"}

    async with serving.muster(tmp_path, roles=("controller",), ledger=ledger) as muster:
        await eventually(lambda: _says(muster, "waiting: the ledger\n"), what="only the ledger is missing", within=200)


async def _says(muster: serving.Muster, words: str) -> bool:
    try:
        return await muster.get("/readyz") == (503, words)
    except aiohttp.ClientConnectionError:
        return False
