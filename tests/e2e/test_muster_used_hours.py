"""What gangs do with their devices, from a stand-in for NVIDIA's exporter by a real Prometheus into the books.

Prometheus's clock cannot be moved, so short recorded times stand for hours.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from admission.api.capacity import gang_shapes
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import fixtures, musters, teams
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team
from tests.integration import prometheus

INTERVAL, STEP, DELAY = 10, 2, 2
PATIENCE = 120.0
"""While Prometheus is away, the leader looks for it once a minute."""
MICRO = 1_000_000

pytestmark = pytest.mark.timeout(480, func_only=True)


def _devices(node: str, *uuids: str) -> list[fleet.Manifest]:
    devices = [fleet.gpu(node, index) for index in range(len(uuids))]
    for device, uuid in zip(devices, uuids, strict=True):
        device["attributes"]["uuid"] = {"string": uuid}
    return [fleet.node(node), fleet.resource_slice(node, devices)]


SHARED = "shared-gpu.example.com"

UNSHARED = ("1.35", "1.34")
"""Releases in which no device is shared by its capacity, as they come."""


def _shared(node: str, uuid: str) -> list[fleet.Manifest]:
    """Return a node whose only device several claims may share, each for some of its memory, and its class."""
    expression = f"device.driver == '{fleet.DRIVER}' && device.attributes['{fleet.DRIVER}'].type == 'shared'"
    device = {
        **fleet.gpu(node, 0),
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "16Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}},
    }
    device["attributes"] |= {"uuid": {"string": uuid}, "type": {"string": "shared"}}
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": SHARED},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    return [device_class, fleet.node(node), fleet.resource_slice(node, [device])]


hardware = fixtures.hardware(
    [
        fleet.device_class(),
        *_devices("used-1", "GPU-A", "GPU-B"),
        *_devices("used-2", "MIG-7"),
        *_shared("used-3", "GPU-S"),
    ]
)


@dataclass
class Exporter:
    """What DCGM exporter shows: by UUID, the part of the time in which the engine is active; and the memory in use.

    A device without a value is not shown. A MIG instance is known by the label that the exporter has of its driver.
    """

    active: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    """In MiB; 1024 without a value."""

    def page(self) -> bytes:
        lines = [
            f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{self._labels(uuid)}}} {value}" for uuid, value in self.active.items()
        ]
        used = [f"DCGM_FI_DEV_FB_USED{{{self._labels(uuid)}}} {self.memory.get(uuid, 1024)}" for uuid in self.active]
        types = [f"# TYPE DCGM_FI_{name} gauge" for name in ("PROF_GR_ENGINE_ACTIVE", "DEV_FB_USED")]
        return "".join(f"{line}\n" for line in (types[0], *lines, types[1], *used)).encode()

    def _labels(self, uuid: str) -> str:
        labels = {"gpu": "0", "UUID": uuid, "Hostname": "used"}
        if uuid.startswith("MIG-"):
            labels |= {"UUID": "GPU-C", "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb", "dra_mig_device_uuid": uuid}
        return ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())


@contextmanager
def exporting(exporter: Exporter) -> Iterator[int]:
    """Serve the exporter's page; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exporter.page()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class World:
    """A Muster that records, the exporter, and a Prometheus between them that may be away."""

    def __init__(self, folder: Path, exporter: Exporter, target: int) -> None:
        self._folder = folder
        self.exporter = exporter
        self.port = prometheus.free_port()
        self._config = {
            "global": {"scrape_interval": "500ms"},
            "scrape_configs": [{"job_name": "dcgm", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
        }
        self._away = ExitStack()

    def scrape(self) -> None:
        self._away.enter_context(prometheus.running(self._folder, self._config, port=self.port))

    def go_away(self) -> None:
        self._away.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    exporter = Exporter()
    with exporting(exporter) as target:
        found = World(tmp_path, exporter, target)
        found.scrape()
        yield found
        found.go_away()


@pytest.fixture
def muster(control_plane: ControlPlane, hardware: None, world: World) -> Iterator[Muster]:
    url = f"http://127.0.0.1:{world.port}"
    usage = {"interval": INTERVAL, "step": STEP, "delay": DELAY, "prometheus": {"url": url, "timeout": 5.0}}
    with musters.running(control_plane, usage=usage) as started:
        yield started


def next_time(*, after: float = 0.0) -> int:
    """Return when the next recorded time begins, some seconds from now."""
    return int(time.time() + after) // INTERVAL * INTERVAL + INTERVAL


def moment(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wait_recorded(muster: Muster, end: int) -> None:
    """Wait until what devices did is recorded up to a moment."""
    question = "SELECT key FROM transactions WHERE kind = 'measure' AND key LIKE ?"
    eventually(
        lambda: muster.rows(question, f"measure:%/{moment(end)}/%"), what=f"{moment(end)} is recorded", within=PATIENCE
    )


def used(muster: Muster, start: int, end: int) -> dict[str, dict[str, str | None]]:
    """Return the report on some time: by Job, what its devices did."""
    period = ("--from", moment(start), "--to", moment(end), "--database", muster.database)
    told = json.loads(muster.command("ledger", "report", "--used", "--by", "gang", "--format", "json", *period))
    return {row["gang"].partition("/")[2].rpartition("-")[0]: row["measured"] for row in told["rows"]}


def uuid_of(control_plane: ControlPlane, team: Team, name: str) -> str:
    """Return the UUID of the only device of a Job."""
    client = control_plane.client()
    (pod,) = team.pods(name)
    (claim,) = pod["status"]["resourceClaimStatuses"]
    given = team.namespace.claim(claim["resourceClaimName"])["status"]["allocation"]["devices"]["results"]
    slices = client.items("/apis/resource.k8s.io/v1/resourceslices")
    devices = {
        (one["spec"]["pool"]["name"], device["name"]): device for one in slices for device in one["spec"]["devices"]
    }
    return str(devices[given[0]["pool"], given[0]["device"]]["attributes"]["uuid"]["string"])


def idle_of(team: Team, name: str) -> Any:
    return condition_of(team, name, "Idle")


def condition_of(team: Team, name: str, kind: str) -> Any:
    found = [one for one in team.status(name).get("conditions", []) if one["type"] == kind]
    return found[0] if found else None


def submit_share(team: Team, name: str, memory: str) -> None:
    """Submit a Job of one pod that asks for some memory of a shared device."""
    exactly = {"deviceClassName": SHARED, "capacity": {"requests": {"memory": memory}}}
    team.namespace.create(workloads.claim_template(name, {"name": "gpu", "exactly": exactly}))
    team.control_plane.client().create(team.jobs, teams.job(name, pods=1, template=name, annotations={}))


def seconds(report: dict[str, str | None]) -> tuple[int | None, int | None]:
    """Return the measured seconds, and the used ones times a million."""
    measured, in_use = report["measuredSeconds"], report["usedMicroseconds"]
    return (None if measured is None else int(measured)), (None if in_use is None else int(in_use))


def test_the_report_says_who_is_busy_and_who_is_idle_to_the_second_whatever_goes_away(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace, world: World, kubernetes: str
) -> None:
    active = world.exporter.active
    idle = {"belowPercent": 5, "after": f"{2 * INTERVAL}s"}
    with teams.founded(control_plane, namespace, gpus=4, idle=idle, unmeteredClasses="Allow") as team:
        shares = {"busy": 0.5, "idle": 0.0, "other": 0.25}
        for name in shares:
            team.submit(name, pods=1)
        sharers = {} if kubernetes in UNSHARED else {"left": "1Gi", "right": "1Gi"}
        for name, memory in sharers.items():
            submit_share(team, name, memory)
        for name in (*shares, *sharers):
            team.wait_running(name, 1)
        active |= {uuid_of(control_plane, team, name): share for name, share in shares.items()}
        assert set(active) == {"GPU-A", "GPU-B", "MIG-7"}
        active["GPU-S"], world.exporter.memory["GPU-S"] = 0.25, 3072

        # Two full times: to the second, and the idle gang is known to be.
        start = next_time(after=STEP)
        end = start + 2 * INTERVAL
        wait_recorded(muster, end)
        found = used(muster, start, end)
        for name, share in shares.items():
            assert seconds(found[name]) == (2 * INTERVAL, int(2 * INTERVAL * share * MICRO)), name
            assert found[name]["memoryPeakBytes"] == str(1024 << 20)
        condition = eventually(lambda: idle_of(team, "idle"), what="the idle gang is known", within=PATIENCE)
        assert (condition["status"], condition["reason"]) == ("True", "DevicesIdle")
        assert idle_of(team, "busy") is idle_of(team, "other") is None
        assert "It is idle: its devices have been in use for less than 5 %" in muster.command(
            "why", f"{namespace.name}/idle"
        )
        events = f"/api/v1/namespaces/{namespace.name}/events"

        def told() -> set[str]:
            found = control_plane.client().items(events)
            return {one["involvedObject"]["kind"] for one in found if one["reason"] == "GangIdle"}

        eventually(lambda: told() == {"Gang", "Job"}, what=lambda: f"Events tell of the idle gang on {told()}")

        _check_memory(team, [*sharers])
        submit_share(team, "large", "100Gi")

        # Another leader goes by the books, and says it no other time; meanwhile there is a gap of the busy gang.
        since = team.status("idle")["idle"]["since"]
        busy = uuid_of(control_plane, team, "busy")
        del active[busy]
        gap = next_time(after=STEP)
        muster.end(hard=True)
        muster.start()
        wait_until(gap + INTERVAL)
        active[busy] = 0.5
        wait_recorded(muster, gap + INTERVAL)
        found = used(muster, gap, gap + INTERVAL)
        assert seconds(found["busy"]) == (0, None)
        assert seconds(found["idle"]) == (INTERVAL, 0)
        holds_for(3, lambda: team.status("idle").get("idle", {}).get("since") == since, what="it is idle since then")

        _check_that_prometheus_may_go_away_and_a_device_change_hands(control_plane, team, muster, world)

        control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", {"spec": {"idle": {"action": "Evict"}}})
        evicted = eventually(
            lambda: team.status("idle").get("evicted"), what="the idle gang is evicted", within=PATIENCE
        )
        assert evicted["reason"] == "DevicesIdle"
        assert idle_of(team, "other") is None
        if sharers:
            _check_what_waited(muster, team)
    assert "ok" in muster.command("ledger", "verify", "--database", muster.database)


def wait_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def _check_memory(team: Team, sharers: Sequence[str]) -> None:
    """Of the shared device more is in use than both of its gangs asked for."""
    for name in sharers:
        found = eventually(partial(condition_of, team, name, "MemoryExceeded"), what=f"{name} is told", within=PATIENCE)
        exceeded = found["message"]
        assert exceeded.startswith("up to 3072 MiB of memory were in use on a device of claim")
        assert exceeded.endswith("and the 2 claims that shared it asked for 2048 MiB of it together")
    assert condition_of(team, "busy", "MemoryExceeded") is None


def _check_what_waited(muster: Muster, team: Team) -> None:
    """The shape of a gang that asked for more memory than any device has is in the books."""
    question = "SELECT * FROM waiting_shapes WHERE shape LIKE ?"
    (waited,) = eventually(lambda: muster.rows(question, "%100Gi%"), what="what waits is written", within=PATIENCE)
    assert gang_shapes.parse(waited["shape"]).title == f"1x1:{SHARED}"
    assert (waited["queue"], waited["namespace"]) == (team.queue, team.namespace.name)
    assert waited["seconds"] >= INTERVAL


def _check_that_prometheus_may_go_away_and_a_device_change_hands(
    control_plane: ControlPlane, team: Team, muster: Muster, world: World
) -> None:
    busy = uuid_of(control_plane, team, "busy")
    world.go_away()
    away = next_time()
    wait_until(away + INTERVAL + 2 * DELAY)
    keys = muster.rows("SELECT key FROM transactions WHERE kind = 'measure' ORDER BY sequence DESC LIMIT 1")
    assert keys[0]["key"] < f"measure:{moment(away)}", "nothing is recorded meanwhile"
    team.finish("busy")
    team.submit("next", pods=1)
    team.wait_running("next", 1)
    assert uuid_of(control_plane, team, "next") == busy

    world.scrape()
    back = next_time(after=5)
    end = back + INTERVAL
    wait_recorded(muster, end)
    found = used(muster, away, away + INTERVAL)
    assert {name: seconds(found[name]) for name in ("busy", "idle", "other")} == dict.fromkeys(
        ("busy", "idle", "other"), (0, None)
    )
    found = used(muster, back, end)
    assert seconds(found["next"]) == (INTERVAL, INTERVAL * MICRO // 2)
    assert "busy" not in found
