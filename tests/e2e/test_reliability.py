"""Two controllers and three webhooks on the real control plane and PostgreSQL, under load, while something fails.

`make test` runs the quick rows of `faults.FAULTS`, `FAULTS=all` (`make soak`) every one. What was measured is printed
and written to bench-results/reliability.json; `MUSTER_REGENERATE=1` writes the table of docs/reliability.md from it.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import conftest
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import disks, matrices, replicas
from tests.e2e.faults import FAULTS, Fault, Reviews, Since, Site
from tests.e2e.labs import Lab, plain
from tests.e2e.loads import REVIEWERS, TEMPLATE, Load
from tests.e2e.matrices import Row
from tests.e2e.replicas import Replicas
from tests.e2e.wires import Network
from tests.e2e.witnesses import Hardware, Witness
from tests.postgres import Server
from tests.postgres.serving import query

EVERY = os.environ.get("FAULTS") == "all"
ROWS = [name for name, fault in FAULTS.items() if fault.quick or EVERY]
NODES, DEVICES = 2, 8
IN_PART = 40
"""Seconds: longer no gang may run in part, whoever dies between its pods."""

SECONDS_TO_FINISH = 150.0
SECONDS_PER_ROW = 600

pytestmark = pytest.mark.timeout(SECONDS_PER_ROW, func_only=True)


@dataclass(frozen=True, slots=True)
class Database:
    """PostgreSQL, on a disk of its own where we may have one. books: the ledger's URL, by no line that could fail."""

    server: Server
    disk: Path | None
    books: str


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with disks.small() as disk, conftest.started(fsync=True, within=disk) as server:
        yield Database(server, disk, server.database())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reliability")


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, database: Database, folder: Path) -> Iterator[Replicas]:
    with Network() as network:
        made = replicas.made(control_plane, network, database.books, folder)
        try:
            for one in made.all:
                one.muster.launch()
            made.wait_ready()
            yield made
        finally:
            made.clean()


@pytest.fixture(scope="module")
def lab(control_plane: ControlPlane, installed: Replicas) -> Iterator[Lab]:
    client = control_plane.client()
    space = Namespace(name="reliable", client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": space.name}})
    muster = installed.controllers[0].muster
    made = Lab(control_plane=control_plane, muster=muster, namespace=space, driver="reliable.test")
    for number in range(NODES):
        made.node(f"r{number}", plain(DEVICES))
    made.device_class()
    made.meter("devices", count={})
    made.found(startTimeout="300s")
    space.create(workloads.claim_template(TEMPLATE, workloads.device_request(device_class=made.driver)))
    try:
        yield made
    finally:
        made.clear()
        client.delete(f"/api/v1/namespaces/{space.name}")


@pytest.fixture(scope="module")
def load(lab: Lab) -> Iterator[Load]:
    others = Namespace(name="bystanders", client=replace(lab.client, patient=False))
    lab.client.create("/api/v1/namespaces", {"metadata": {"name": others.name}})
    made = Load(lab=lab, others=others)
    with made.running():
        yield made
    others.empty()
    lab.client.delete(f"/api/v1/namespaces/{others.name}")


@pytest.fixture(scope="module")
def witness(lab: Lab) -> Iterator[Witness]:
    made = Witness(lab.client, Hardware.of(lab.driver, lab.hardware))
    with made.watching():
        yield made


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    found: list[Row] = []
    yield found
    matrices.publish(found)


@pytest.fixture(scope="module")
def site(installed: Replicas, load: Load, witness: Witness, database: Database, folder: Path) -> Site:
    return Site(
        replicas=installed,
        load=load,
        witness=witness,
        database=database.server,
        disk=database.disk,
        folder=folder,
        books=database.books,
    )


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_lost_or_granted_twice_and_nobody_else_is_refused_though(
    name: str, site: Site, rows: list[Row]
) -> None:
    trial = Trial(fault=FAULTS[name], site=site)

    row = trial.run(name)

    rows.append(row)
    trial.judge(row)


@dataclass(slots=True, kw_only=True)
class Trial:
    """One fault and what comes of it. Streams and witness run all along."""

    fault: Fault
    site: Site

    def run(self, name: str) -> Row:
        """Begin and end it while gangs come and go; return when all of them have run, and what was seen."""
        load = self.site.load
        others, reviews = len(load.bystanders), len(load.reviews)
        load.submit()
        self.site.next_grant(time.monotonic(), Since.START)

        self.fault.does(self.site)

        began, ended = (self.site.times[one] for one in (Since.START, Since.END))
        origin = self.site.times[self.fault.since]
        granted = self.site.next_grant(origin, self.fault.since)
        eventually(self._all_are_answered, what="pods of the queue are judged again")
        load.pause()
        eventually(lambda: not load.unfinished(), what="every gang has run whole", within=SECONDS_TO_FINISH)
        load.lab.wait_used(devices=(0, 0))

        met = [one for one in load.reviews[reviews:] if one.ended > began]
        passing = load.bystanders[others:]
        return Row(
            fault=name,
            since=self.fault.since,
            lasted=ended - began,
            grant=granted - origin,
            reviews=len(met),
            refused=sum(bool(one.refusal) for one in met),
            refusing=max((one.ended - origin for one in met if one.refusal), default=0.0),
            bystanders=len(passing),
            slowest=max(one.took for one in passing),
            gangs=len(load.gangs),
            in_part=max(self.site.witness.in_part.values(), default=0),
        )

    def _all_are_answered(self) -> bool:
        return not any(one.refusal for one in self.site.load.reviews[-2 * REVIEWERS :])

    def judge(self, row: Row) -> None:
        """Hold what was seen against what is promised."""
        load = self.site.load
        muster = load.lab.muster
        assert not [one.refusal for one in load.bystanders if one.refusal], "pods of namespaces without a queue"
        assert not load.slipped, "pods of a queued namespace that nobody judged"
        self._judge_reviews(row)
        assert not self.site.witness.wrong, "devices that more claims had than there are"
        assert row.in_part <= IN_PART, "a gang ran in part"
        with ThreadPoolExecutor() as threads:
            verified = threads.submit(muster.ledger, "verify")
            reconciled = threads.submit(muster.ledger, "reconcile", "--grace", "0.5")
        assert "are right" in verified.result()
        assert "say what the cluster shows" in reconciled.result()
        assert not self._granted_otherwise(), "gangs that were not granted once"
        assert not [one.muster.defect for one in self.site.replicas.all if one.muster.defect]
        load.forget()

    def _judge_reviews(self, row: Row) -> None:
        match self.fault.reviews:
            case Reviews.ALL:
                assert not row.refused
            case Reviews.SOME:
                assert row.refused < row.reviews / 2
            case Reviews.NONE:
                assert row.refused

    def _granted_otherwise(self) -> dict[str, str]:
        """Return the entries of gangs that the ledger has not granted once, those that were taken back not counted.

        Where the fault takes gangs back that have just started, one may have run on what was taken back.
        """
        kinds = "string_agg(kind, ' ' ORDER BY sequence)"
        asked = f"SELECT gang, {kinds} FROM transactions WHERE gang <> '' GROUP BY gang"  # noqa: S608
        found = {gang.partition("/")[2].rpartition("-")[0]: str(told) for gang, told in query(self.site.books, asked)}
        entries = {name: found.get(name, "") for name in self.site.load.gangs}
        return {name: told for name, told in entries.items() if not self._is_granted_once(told.split())}

    def _is_granted_once(self, kinds: list[str]) -> bool:
        granted = kinds.count("reserve") - kinds.count("evict")
        moves = [kind for kind in kinds if kind != "release"]
        return granted == 1 or (self.fault.takes_back and granted == 0 and moves[-2:] == ["settle", "evict"])
