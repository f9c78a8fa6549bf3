"""The dashboard of a large cluster in real Chromium: how soon a page is painted, and how soon it answers a person.

The server is a process of its own (`dashboard_site`). A page is opened in a browser that has never seen it, and the
first contentful paint is counted from the start of the navigation (W3C Paint Timing). What a person does there is
counted from the click until the frame with what it brings is painted; scripts put that in place.

The browser takes most of that, and on a crowded machine waits for a processor. So it is also told how long the server
took to answer (requestStart to responseEnd), and what processor time it had meanwhile, in ticks of ten milliseconds.

It has an end on such a machine, too: no round begins after `SECONDS`, and a page that takes longer than `LATE` is
counted as late, with nothing measured. Each round is told on the standard error.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

from playwright.sync_api import Browser, Page, TimeoutError as LateError, sync_playwright
from rich.table import Table

from tests import browser
from tests.bench.dashboard_site import TOKEN

PAINT, ANSWER = 1_000, 200
"""Goals, in milliseconds."""

SECONDS = 900.0
"""No round begins later than so many seconds after the first."""

LATE = 60_000
"""Milliseconds for which a page, or what is done there, is waited for."""

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
    "used hours": "/ledger/used",
    "waiting of a week": "/ledger/waiting",
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
        } else if (performance.now() - from > LATE) done([]);
        else setTimeout(look, 1);
    };
    look();
})""".replace("LATE", str(LATE))
PAINTED = """() => new Promise((done) => {
    const look = () => {
        const found = performance.getEntriesByName("first-contentful-paint")[0];
        const navigation = performance.getEntriesByType("navigation")[0];
        const answered = navigation.responseEnd - navigation.requestStart;
        if (found) done([found.startTime, answered]);
        else if (performance.now() > LATE) done([]);
        else setTimeout(look, 5);
    };
    look();
})""".replace("LATE", str(LATE))


class Tally:
    """What was measured of each page, or of each thing that is done: milliseconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = 0.0
        self.found: dict[str, dict[str, list[float]]] = {}
        self.late: list[str] = []

    def begin(self) -> None:
        self._before = _processor(self._pid)

    def note(self, name: str, seen: Sequence[float]) -> None:
        """Write down what was seen since `begin`: painted and answered; nothing, if it came too late."""
        if not seen:
            self.late.append(name)
            return
        painted, answered = seen
        kept = self.found.setdefault(name, {"painted": [], "answered": [], "processor": []})
        kept["painted"].append(painted)
        kept["answered"].append(answered)
        kept["processor"].append(_processor(self._pid) - self._before)


def measure(*, queues: int, gangs: int, rounds: int) -> dict[str, Any]:
    """Open each page, and do each thing, as often."""
    with _site(queues, gangs) as (url, pid), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.path(), args=["--no-sandbox"])
        paints, answers = Tally(pid), Tally(pid)
        began, done = time.monotonic(), 0
        while done < rounds and time.monotonic() - began < SECONDS:
            _round(chromium, url, paints, answers)
            done += 1
            print(f"round {done} of {rounds}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        chromium.close()
        resident = _resident(pid)
    found = {"paints": paints.found, "answers": answers.found, "late": paints.late + answers.late}
    return {"queues": queues, "gangs": gangs, "rounds": done, **found, "resident_mib": resident}


def _round(chromium: Browser, url: str, paints: Tally, answers: Tally) -> None:
    for name, path in PAGES.items():
        with _person(chromium) as page:
            paints.begin()
            paints.note(name, page.evaluate(PAINTED) if _opens(page, url + path) else ())
    with _person(chromium) as page:
        _do_all(page, url, answers)


def _opens(page: Page, url: str) -> bool:
    """Open a page; return whether it came in time."""
    try:
        page.goto(url, timeout=LATE)
    except LateError:
        return False
    return True


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
    def go(name: str, path: str, act: str, selector: str, *, typed: str = "") -> None:
        if not _opens(page, url + path):
            return tally.note(name, ())
        if typed:
            page.fill('input[name="q"]', typed)
        tally.begin()
        found = page.evaluate(GO, [act, selector])
        assert found is not None, f"{page.url} has no {selector}"
        return tally.note(name, found)

    for name, (path, selector) in LEADS.items():
        go(name, path, "click", selector)
    go("search gangs by a part of a name", "/gangs", "requestSubmit", "form[data-search]", typed="train-0500")
    go("open a level of the tree", "/queues", "click", '[data-toggle][aria-expanded="false"]')


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
    late = f"; late: {', '.join(sorted(set(result['late'])))}" if result["late"] else ""
    title = f"The dashboard of {size}, ms, {result['rounds']} rounds; {result['resident_mib']:.0f} MiB{late}"
    made = Table(title=title)
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
