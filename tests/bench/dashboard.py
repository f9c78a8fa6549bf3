"""The dashboard of a large cluster in real Chromium: how soon a page is painted, and how soon it answers a person.

The server is a process of its own (`dashboard_site`). A page is opened in a browser that has never seen it, and the
first contentful paint is counted from the start of the navigation (W3C Paint Timing). What a person does there is
counted from the click until the frame with what it brings is painted; scripts put that in place.

The browser takes most of that, and on a crowded machine waits for a processor. So it is also told how long the server
took to answer (requestStart to responseEnd), and what processor time it had meanwhile, in ticks of ten milliseconds.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from rich.table import Table

from tests import browser
from tests.bench.dashboard_site import TOKEN

PAINT, ANSWER = 1_000, 200
"""Goals, in milliseconds."""

PAGES = {
    "the form to sign in, of which nothing depends on the cluster": "/login",
    "overview": "/",
    "queues": "/queues",
    "a queue": "/queues/dept3-group4-team123",
    "gangs": "/gangs",
    "a gang that runs": "/gangs/team-0/train-05000",
    "a gang that waits": "/gangs/team-1/train-05001",
    "devices": "/devices",
    "the map of all devices": "/heatmap",
    "a node": "/devices/node-0625",
    "ledger": "/ledger",
    "a statement": "/ledger/statements/team-3",
    "device-hours of a week": "/ledger/use",
    "time travel": "/past?at=2026-12-01T00:00",
}

LEADS = {
    "open the gangs from the overview": ("/", 'nav[aria-label="Main"] a[href="/gangs"]'),
    "next page of gangs": ("/gangs", 'a[href*="page=2"]'),
    "open a gang from the list": ("/gangs?phase=Running", "tbody th a"),
    "open a node from a gang": ("/gangs/team-0/train-05000", 'td a[href^="/devices/"]'),
    "open a queue from the tree": ("/queues", "tbody th a:not(.twist)"),
    "the gangs that wait for one reason": ("/", 'a[href*="reason=DevicesBusy"]'),
    "older transactions": ("/ledger", 'a[href*="before="]'),
    "device-hours by class": ("/ledger/use?by=class", "form button"),
}
"""What is clicked on which page, and leads to another one."""

GO = """([act, selector]) => new Promise((done) => {
    const found = document.querySelector(selector);
    if (!found) return done(null);
    const shown = () => `${location.href} ${document.querySelectorAll("tbody tr").length}`;
    const before = shown();
    const from = performance.now();
    found[act]();
    const look = () => {
        if (shown() !== before) {
            requestAnimationFrame(() => setTimeout(() => {
                const asked = performance.getEntriesByType("resource")
                    .filter((one) => one.initiatorType === "fetch").at(-1);
                done([performance.now() - from, asked.responseEnd - asked.requestStart]);
            }));
        } else setTimeout(look, 1);
    };
    look();
})"""
PAINTED = """() => new Promise((done) => {
    const look = () => {
        const found = performance.getEntriesByName("first-contentful-paint")[0];
        const navigation = performance.getEntriesByType("navigation")[0];
        const answered = navigation.responseEnd - navigation.requestStart;
        if (found) done([performance.timeOrigin + found.startTime, found.startTime, answered]);
        else setTimeout(look, 5);
    };
    look();
})"""


class Tally:
    """What was measured of each page, or of each thing that is done: milliseconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = 0.0
        self.found: dict[str, dict[str, list[float]]] = {}

    def begin(self) -> None:
        self._before = _processor(self._pid)

    def note(self, name: str, *, painted: float, answered: float) -> None:
        """Write down what was seen since `begin`."""
        kept = self.found.setdefault(name, {"painted": [], "answered": [], "processor": []})
        kept["painted"].append(painted)
        kept["answered"].append(answered)
        kept["processor"].append(_processor(self._pid) - self._before)


def measure(*, queues: int, gangs: int, rounds: int) -> dict[str, Any]:
    """Open each page, and do each thing, as often."""
    with _site(queues, gangs) as (url, pid), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.path(), args=["--no-sandbox"])
        paints, answers = Tally(pid), Tally(pid)
        for _ in range(rounds):
            for name, path in PAGES.items():
                with _person(chromium) as page:
                    paints.begin()
                    page.goto(url + path)
                    _, painted, answered = page.evaluate(PAINTED)
                    paints.note(name, painted=painted, answered=answered)
            with _person(chromium) as page:
                _do_all(page, url, answers)
        chromium.close()
        resident = _resident(pid)
    found = {"paints": paints.found, "answers": answers.found}
    return {"queues": queues, "gangs": gangs, "rounds": rounds, **found, "resident_mib": resident}


@contextmanager
def _site(queues: int, gangs: int) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.bench.dashboard_site", folder]
        command += ["--queues", str(queues), "--gangs", str(gangs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip(), process.pid
            finally:
                process.terminate()


@contextmanager
def _person(chromium: Browser) -> Iterator[Page]:
    """Somebody whose browser is new here."""
    context = chromium.new_context(
        viewport={"width": 1360, "height": 850}, extra_http_headers={"Authorization": f"Bearer {TOKEN}"}
    )
    yield context.new_page()
    context.close()


def _do_all(page: Page, url: str, tally: Tally) -> None:
    def go(name: str, act: str, selector: str) -> None:
        tally.begin()
        found = page.evaluate(GO, [act, selector])
        assert found is not None, f"{page.url} has no {selector}"
        tally.note(name, painted=found[0], answered=found[1])

    for name, (path, selector) in LEADS.items():
        page.goto(url + path)
        go(name, "click", selector)
    page.goto(url + "/gangs")
    page.fill('input[name="q"]', "train-0500")
    go("search gangs by a part of a name", "requestSubmit", "form[data-search]")
    page.goto(url + "/queues")
    go("open a level of the tree", "click", '[data-toggle][aria-expanded="false"]')


def _processor(pid: int) -> float:
    """Return the processor time that a process has had, in ms (proc_pid_stat(5), utime and stime)."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1_000 / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def table(result: dict[str, Any]) -> Table:
    """Show medians and the worst paint."""
    size = f"{result['queues']} queues and {result['gangs']} gangs"
    made = Table(title=f"The dashboard of {size}, ms, {result['rounds']} rounds; {result['resident_mib']:.0f} MiB")
    for column in ("", "painted", "worst", "goal", "answered", "processor"):
        made.add_column(column, justify="right" if column else "left")
    for kind, goal in (("paints", PAINT), ("answers", ANSWER)):
        for name, found in result[kind].items():
            painted, answered, spent = (found[of] for of in ("painted", "answered", "processor"))
            seen = (median(painted), max(painted), median(answered), mean(spent))
            shown = [f"{value:.0f}" for value in seen]
            made.add_row(name, *shown[:2], f"< {goal:,}", *shown[2:])
        made.add_section()
    return made
