"""A real Prometheus scrapes Muster's page and a stand-in for NVIDIA's exporter, and says what each gang's devices do.

The exporter's page has the form of DCGM exporter's, with the labels that it has for pods, claims and MIG instances.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from admission.cycle.state.result import CycleResult
from admission.status.device_allocations import DeviceAllocation
from admission.telemetry import metric_catalog
from admission.telemetry.metrics import Metrics
from tests.integration.prometheus import free_port, running

RULES = Path(__file__).parents[2] / "deploy" / "chart" / "files" / "usage-rules.yaml"
SECONDS = 60.0
"""How long is waited for what a scrape a second should show within two or three."""

pytestmark = pytest.mark.timeout(240, func_only=True)

ACTIVE, ALLOCATED = "muster:allocation_active:ratio", "muster:gang_devices_allocated:count"


@dataclass
class Pages:
    """What is scraped, by path: Muster's page, and the lines of the exporter."""

    metrics: Metrics
    lines: dict[str, float] = field(default_factory=dict)

    def page(self, path: str) -> bytes:
        if path == "/muster":
            return self.metrics.render([], {})[0]
        families = sorted({line.partition("{")[0] for line in self.lines})
        text = [f"# HELP {name} A field of DCGM.\n# TYPE {name} gauge\n" for name in families]
        return "".join([*text, *(f"{line} {value}\n" for line, value in self.lines.items())]).encode()

    def held(self, **uuids: str) -> None:
        """Show who holds what: gang → UUID of its device."""
        empty = DeviceAllocation(*("",) * len(DeviceAllocation._fields))
        found = {
            f"ml/{gang}": (
                empty._replace(
                    driver="gpu.nvidia.com",
                    device=uuid,
                    device_class="h100",
                    uuid=uuid,
                    namespace="ml",
                    claim=gang,
                    pod=f"{gang}-0",
                    gang=gang,
                    queue="vision",
                    queue_path='research "x\\y"/vision',
                ),
            )
            for gang, uuid in uuids.items()
        }
        self.metrics.record_cycle(CycleResult(allocations=found), 0.1)


class Answers:
    """The HTTP API of a Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def values(self, query: str, *, by: str) -> dict[str, float]:
        """Return the values of an instant query by one label."""
        address = f"{self._url}/api/v1/query?{urlencode({'query': query})}"
        with urlopen(address, timeout=5) as answer:  # noqa: S310 - of the Prometheus that was started here
            found = json.load(answer)["data"]["result"]
        return {one["metric"].get(by, ""): float(one["value"][1]) for one in found}

    def wait(self, query: str, *, by: str, until: Mapping[str, float]) -> None:
        """Wait until a query has these values."""
        end, found = time.monotonic() + SECONDS, dict[str, float]()
        while time.monotonic() < end:
            try:
                found = self.values(query, by=by)
            except (URLError, ConnectionError):  # it is starting
                found = {}
            if found == until:
                return
            time.sleep(0.2)
        pytest.fail(f"{query} is {found} after {SECONDS} seconds, not {dict(until)}")


@pytest.fixture
def pages() -> Pages:
    metrics = Metrics(allocations=100)
    metrics.set_term(1)
    return Pages(metrics)


@pytest.fixture
def scraped(pages: Pages) -> Iterator[str]:
    """The address at which the pages are served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.page(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def prometheus(scraped: str, tmp_path: Path) -> Iterator[Answers]:
    """A Prometheus that scrapes and evaluates every second. Without the program the test is skipped."""
    jobs = [
        {"job_name": name, "metrics_path": f"/{name}", "honor_labels": True, "static_configs": [{"targets": [scraped]}]}
        for name in ("muster", "dcgm")
    ]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs}
    with running(tmp_path, config, port=free_port()) as url:
        yield Answers(url)


def field_of(name: str, uuid: str, **labels: str) -> str:
    """Return a line of the exporter, without its value."""
    known = {"gpu": "0", "UUID": uuid, "device": "nvidia0", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "node-a"}
    return f"DCGM_FI_{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in (known | labels).items())}}}"


def engine(uuid: str, **labels: str) -> str:
    return field_of("PROF_GR_ENGINE_ACTIVE", uuid, **labels)


def test_prometheus_says_what_the_devices_of_each_gang_do(pages: Pages, prometheus: Answers) -> None:
    # One gang works, the other does not.
    pages.lines = {engine("GPU-1", pod="other"): 0.5, engine("GPU-2"): 0.0, field_of("DEV_FB_USED", "GPU-1"): 3.0}
    pages.held(train="GPU-1", sleep="GPU-2")
    prometheus.wait(ACTIVE, by="gang", until={"train": 0.5, "sleep": 0.0})
    prometheus.wait("muster:allocation_memory_used:bytes", by="pod", until={"train-0": 3 * 2.0**20})
    prometheus.wait("muster:queue_devices_active:sum", by="queue_path", until={'research "x\\y"/vision': 0.5})

    # The exporter loses a device: what is not measured is missing, and still allocated.
    pages.lines = {engine("GPU-1"): 0.5}
    prometheus.wait(ACTIVE, by="gang", until={"train": 0.5})
    assert prometheus.values(ALLOCATED, by="gang") == {"train": 1, "sleep": 1}

    # Another gang gets the device, beside a MIG instance of another card.
    mig = {"GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb", "dra_mig_device_uuid": "MIG-7"}
    pages.lines = {engine("GPU-1"): 0.25, engine("GPU-3"): 0.75, engine("GPU-3", **mig): 0.125}
    pages.held(next="GPU-1", slice="MIG-7")
    prometheus.wait(ACTIVE, by="gang", until={"next": 0.25, "slice": 0.125})
    assert prometheus.values(ALLOCATED, by="gang") == {"next": 1, "slice": 1}

    # The term is over: another process shows who holds what.
    pages.metrics.set_term(None)
    prometheus.wait("muster:device_allocation:info", by="gang", until={})


def test_prometheus_reads_every_label_of_an_allocated_device(pages: Pages, prometheus: Answers) -> None:
    odd = {"uuid": 'a "b" \\ c\nd', "queue_path": "é/ü"}
    names = metric_catalog.ALLOCATIONS.label_names
    pages.metrics.record_cycle(CycleResult(allocations={"a/c": (DeviceAllocation(*names)._replace(**odd),)}), 0.1)

    for name in ("uuid", "queue_path", "class", "pod", "namespace"):
        wanted = odd.get(name, name)
        prometheus.wait(metric_catalog.ALLOCATIONS.name, by=name, until={wanted: 1})
    assert prometheus.values(metric_catalog.OMITTED.name, by="job") == {"muster": 0}
