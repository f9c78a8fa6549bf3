"""The faults that Muster's replicas are put through: what each breaks and mends, and what it may cost.

`FAULTS` is the matrix that `test_reliability` runs and docs/reliability.md publishes, keyed by what happens.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

import asyncpg
import pytest
import yaml

from admission.api.values.reasons import HoldReason
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e import disks, jumping, versions
from tests.e2e.herds import CRDS
from tests.e2e.loads import Load
from tests.e2e.musters import COMMAND, ROOT
from tests.e2e.replicas import WEBHOOKS, Replica, Replicas
from tests.e2e.teams import GROUP
from tests.e2e.wires import Weather
from tests.e2e.witnesses import Witness
from tests.postgres import Server
from tests.postgres.serving import query

SECONDS_TO_GRANT = 90.0

QUIET = 5.0
"""Seconds for which a fault lasts at least, so that users meet it."""

UNAVAILABLE = HoldReason.LEDGER_UNAVAILABLE
HOUR = 3600.0
SHORT_LIVED = 15.0
"""Seconds that a certificate lasts which is to expire: files are read again every ten."""


class Since(StrEnum):
    """From when on it is counted how long recovery takes."""

    START = "start"
    END = "end"


class Reviews(StrEnum):
    """What becomes of pods of queued namespaces while it lasts. Those of others are never refused."""

    ALL = "all are answered"
    SOME = "some are refused"
    NONE = "all are refused"


@dataclass(slots=True, kw_only=True)
class Site:
    """What a fault may touch; it says itself when it begins and ends. disk: a small one that the database is on."""

    replicas: Replicas
    load: Load
    witness: Witness
    database: Server
    disk: Path | None
    folder: Path
    """For files."""
    books: str
    """The ledger's URL, by no line that could fail."""
    times: dict[Since, float] = field(default_factory=dict)

    def begins(self) -> None:
        self.times[Since.START] = time.monotonic()

    def ends(self) -> None:
        self.times[Since.END] = time.monotonic()

    def next_grant(self, origin: float, since: Since) -> float:
        """Wait until a gang is let in, and return when; after a fault's start, one that was submitted since."""
        submitted, opened = self.load.gangs, self.witness.opened
        asked = submitted if since is Since.START else opened

        def first() -> float | None:
            return min((at for name, at in opened.copy().items() if asked.get(name, 0.0) > origin), default=None)

        return eventually(first, what="the next grant", within=SECONDS_TO_GRANT)

    def holds(self, reason: str) -> bool:
        """Say whether some gang is told to wait for this reason."""
        gangs = self.load.lab.client.items(f"{GROUP}/namespaces/{self.load.lab.namespace.name}/gangs")
        return any(gang.get("status", {}).get("hold", {}).get("reason") == reason for gang in gangs)

    def wait_succession(self, transitions: int) -> None:
        """Wait until the lease has changed hands since it had done so so often."""
        eventually(lambda: self.replicas.transitions > transitions, what="the other controller leads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row. does: breaks something and mends it; seen: by users; kept: what holds beside that which holds in every
    row; takes_back: whether gangs may be taken back that have just started; quick: whether `make test` has it, too."""

    does: Callable[[Site], None]
    seen: str
    kept: str
    since: Since = Since.START
    reviews: Reviews = Reviews.ALL
    takes_back: bool = False
    quick: bool = False


def leader_killed(site: Site) -> None:
    leader, before = site.replicas.leader, site.replicas.transitions
    site.begins()
    leader.kill()
    site.wait_succession(before)
    site.ends()
    leader.restart()


def leader_paused(site: Site) -> None:
    """Freeze the leader until the other one leads; then it goes on, and believes that it leads."""
    leader, before = site.replicas.leader, site.replicas.transitions
    site.begins()
    leader.pause()
    try:
        site.wait_succession(before)
        time.sleep(QUIET)
    finally:
        leader.go_on()
    site.ends()


def standby_killed(site: Site) -> None:
    standby = site.replicas.standby
    site.begins()
    standby.kill()
    time.sleep(QUIET)
    site.ends()
    standby.restart()


def standby_paused(site: Site) -> None:
    """Freeze it for longer than a lease lasts: when it goes on, what it saw last is a lease that has run out."""
    standby, before = site.replicas.standby, site.replicas.transitions
    site.begins()
    standby.pause()
    try:
        time.sleep(2 * QUIET)
    finally:
        standby.go_on()
    time.sleep(QUIET)
    site.ends()
    assert site.replicas.transitions == before, "a leader that renews its lease keeps it"


def webhook_killed(site: Site) -> None:
    webhook = site.replicas.webhooks[0]
    site.begins()
    webhook.kill()
    time.sleep(QUIET)
    site.ends()
    webhook.restart()


def webhooks_killed(site: Site) -> None:
    site.begins()
    for webhook in site.replicas.webhooks:
        webhook.kill()
    time.sleep(QUIET)
    site.ends()
    for webhook in site.replicas.webhooks:
        webhook.muster.launch()
    site.replicas.wait_ready()


def leading(replicas: Replicas) -> Sequence[Replica]:
    return [replicas.leader]


def standing_by(replicas: Replicas) -> Sequence[Replica]:
    return [replicas.standby]


def at_the_door(replicas: Replicas) -> Sequence[Replica]:
    return replicas.webhooks


def everybody(replicas: Replicas) -> Sequence[Replica]:
    return replicas.all


def cut_off(whom: Callable[[Replicas], Sequence[Replica]], weather: Weather) -> Callable[[Site], None]:
    """Have bad weather between some of Muster and the API server."""

    def cut(site: Site) -> None:
        before = site.replicas.transitions
        lines = [one.cluster for one in whom(site.replicas)]
        site.begins()
        for line in lines:
            line.turn(weather)
        if whom is leading:
            site.wait_succession(before)
        time.sleep(QUIET)
        site.ends()
        for line in lines:
            line.turn(Weather.CLEAR)

    return cut


def books_cut_off(*, leader: bool, weather: Weather) -> Callable[[Site], None]:
    """Have bad weather between controllers and PostgreSQL: for the leader alone, or for both."""

    def cut(site: Site) -> None:
        ones = [site.replicas.leader] if leader else site.replicas.controllers
        lines = [one.books for one in ones if one.books is not None]
        site.begins()
        for line in lines:
            line.turn(weather)
        if weather is not Weather.LATE:
            eventually(lambda: site.holds(UNAVAILABLE), what="gangs wait for the database")
        time.sleep(QUIET)
        site.ends()
        for line in lines:
            line.turn(Weather.CLEAR)

    return cut


def webhooks_unreached(site: Site) -> None:
    site.begins()
    site.replicas.service.line.turn(Weather.LOST)
    time.sleep(2 * QUIET)
    site.ends()
    site.replicas.service.line.turn(Weather.CLEAR)


def webhook_paused(site: Site) -> None:
    webhook = site.replicas.webhooks[0]
    site.begins()
    webhook.pause()
    try:
        time.sleep(3 * QUIET)
    finally:
        site.ends()
        webhook.go_on()


def postgres_killed(site: Site) -> None:
    site.begins()
    site.database.kill()
    time.sleep(QUIET)
    site.database.start()
    site.ends()


def everybody_restarted(site: Site) -> None:
    """Restart all as a Deployment with `maxUnavailable: 0` does: all are ready again before the next one ends."""
    site.begins()
    for one in site.replicas.all:
        one.restart()
        site.replicas.wait_ready()
    site.ends()


def disk_filled(site: Site) -> None:
    """Leave the database no room: sooner or later it needs another segment for its log, finds none, and ends."""
    if site.disk is None:
        leave_out("only root may mount a small disk")
    site.begins()
    filler = disks.fill(site.disk)

    def gangs_are_held() -> bool:
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            site.database.query("SELECT pg_switch_wal()")
        return site.holds(UNAVAILABLE)

    try:
        eventually(gangs_are_held, what="gangs wait for the database")
        time.sleep(QUIET)
    finally:
        filler.unlink()
    if not site.database.runs:
        site.database.start()
    site.ends()


def expired(*numbers: int) -> Callable[[Site], None]:
    """Have the certificates of these webhooks expire, which nobody renews in time."""

    def expire(site: Site) -> None:
        shown, webhooks = site.replicas.certificates, [site.replicas.webhooks[number] for number in numbers]
        for number in numbers:
            shown.renew(number, seconds=SHORT_LIVED)
        eventually(lambda: not any(webhook.ready for webhook in webhooks), what="the certificates have expired")
        site.begins()
        if len(numbers) == WEBHOOKS:
            # Connections that stand would go on, since nobody verifies a certificate again.
            site.replicas.service.line.turn(Weather.CUT)
            site.replicas.service.line.turn(Weather.CLEAR)
        time.sleep(QUIET)
        site.ends()
        for number in numbers:
            shown.renew(number)
        site.replicas.wait_ready()

    return expire


def clock_jumps(seconds: float) -> Callable[[Site], None]:
    """Have the leader's clock jump, and jump back."""

    def jump(site: Site) -> None:
        controllers, wrong = site.replicas.controllers, site.folder / "seconds-wrong"
        jumping.set_wrong(wrong, 0)
        for one in controllers:
            one.muster.words = (sys.executable, "-m", "tests.e2e.jumping", str(wrong))
            one.restart()
        origin = time.monotonic()
        site.next_grant(origin, Since.START)

        jumping.set_wrong(wrong, seconds)
        site.begins()
        site.next_grant(time.monotonic(), Since.START)
        time.sleep(QUIET)
        jumping.set_wrong(wrong, 0)
        site.ends()

        site.next_grant(time.monotonic(), Since.START)
        for one in controllers:
            one.muster.words = (COMMAND,)
            one.restart()

    return jump


def crds_upgraded(site: Site) -> None:
    """Apply CRDs of a later release, with a version and a field more; then controllers start that apply their own."""
    client = site.load.lab.client
    site.begins()
    for file in sorted((ROOT / "config" / "crds").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        client.apply(f"{CRDS}/{definition['metadata']['name']}", later(definition), manager="muster")
    time.sleep(QUIET)
    for one in site.replicas.controllers:
        one.restart()
    site.ends()


def later(definition: Manifest) -> Manifest:
    made = deepcopy(definition)
    versions = made["spec"]["versions"]
    for version in versions:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    versions.append({**deepcopy(versions[0]), "name": "v1beta1", "storage": False})
    return made


def upgraded(site: Site) -> None:
    """Upgrade the controllers one by one, from a version whose books have the schema before; then try to go back.

    The first one that starts brings the schema up to date, and that refuses what the old leader writes.
    """
    tree = history(site, versions.BEFORE)
    site.load.pause()
    eventually(lambda: not site.load.unfinished(), what="every gang of the books until now has run")
    site.load.forget()
    site.books = site.database.database()
    for one in site.replicas.controllers:
        one.muster.end()
        one.use(site.books, webhook={}, controller={})
        one.muster.words = versions.words(tree)
    for one in site.replicas.controllers:
        one.muster.launch()
    site.load.submit()
    leader, standby = site.replicas.leader, site.replicas.standby
    site.next_grant(time.monotonic(), Since.START)
    assert schema(site) == versions.SCHEMA

    standby.muster.words = (COMMAND,)
    standby.muster.end()
    standby.use(site.books)
    standby.muster.launch()
    eventually(lambda: schema(site) > versions.SCHEMA, what="the new version has upgraded the schema")
    site.begins()
    standby.wait_ready()
    eventually(lambda: site.replicas.leader is standby, what="the new version leads")
    leader.muster.words = (COMMAND,)
    leader.use(site.books)
    leader.restart()
    site.ends()

    leader.muster.end()
    leader.use(site.books, webhook={}, controller={})
    leader.muster.words = versions.words(tree)
    leader.muster.launch()
    eventually(lambda: leader.muster.program.ended, what="the version of before refuses the new schema")
    assert "newer than this Muster" in leader.muster.log
    leader.muster.words = (COMMAND,)
    leader.use(site.books)
    leader.restart()


def webhooks_upgraded(site: Site) -> None:
    """Have webhooks of an earlier version beside controllers of this one, and upgrade them one by one."""
    tree, replicas = history(site, versions.WEBHOOKS_BEFORE), site.replicas
    for webhook in replicas.webhooks:
        webhook.become(versions.words(tree), earlier=True)
        webhook.restart()
    # Controllers start later than they, as in an upgrade, and apply the CRDs of this version.
    for controller in replicas.controllers:
        controller.restart()
    replicas.wait_ready()
    site.begins()
    site.next_grant(time.monotonic(), Since.START)
    for webhook in replicas.webhooks:
        webhook.become((COMMAND,))
        webhook.restart()
        replicas.wait_ready()
    site.ends()


def history(site: Site, commit: str) -> Path:
    """Return a folder with the package of an earlier version."""
    tree = versions.unpacked(site.folder, commit)
    if tree is None:
        leave_out("the history of the repository is not here: fetch it whole (git fetch --unshallow)")
    return tree


def leave_out(why: str) -> NoReturn:
    """Leave a row out where it cannot be tried; in CI every row is, so that none goes missing unseen."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def schema(site: Site) -> str:
    [(revision,)] = query(site.books, "SELECT version_num FROM alembic_version")
    return str(revision)


FAULTS: dict[str, Fault] = {
    "the leading controller is killed": Fault(
        does=leader_killed,
        seen="nothing is granted until the other controller leads",
        kept="what was granted and not placed is placed by the successor, or taken back",
        quick=True,
    ),
    "the leading controller is paused past its lease": Fault(
        does=leader_paused,
        seen="nothing is granted until the other controller leads",
        kept="the one that wakes finds its lease lost; what it still tries to write, the ledger refuses",
        quick=True,
    ),
    "the controller that stands by is killed": Fault(
        does=standby_killed,
        seen="nothing",
        kept="the leader does not need it",
    ),
    "the controller that stands by is paused past the lease": Fault(
        does=standby_paused,
        seen="nothing",
        kept="when it wakes the lease looks as if it had run out; it does not get it from a leader that renews it",
    ),
    "one webhook of three is killed": Fault(
        does=webhook_killed,
        seen="pods that it was asked about are refused, until the Service drops it; Jobs try again",
        kept="the other two answer",
        reviews=Reviews.SOME,
        quick=True,
    ),
    "all webhooks are killed": Fault(
        does=webhooks_killed,
        seen="pods of queued namespaces are refused until one is back; Jobs try again",
        kept="no pod of a queued namespace comes in without having been judged",
        since=Since.END,
        reviews=Reviews.NONE,
    ),
    "one webhook of three is paused": Fault(
        does=webhook_paused,
        seen="pods that it is asked about wait for 5 s and are refused, until the Service drops it; Jobs try again",
        kept="the other two answer",
        reviews=Reviews.SOME,
    ),
    "the API server does not reach the webhooks": Fault(
        does=webhooks_unreached,
        seen="pods of queued namespaces wait for 5 s and are refused; Jobs try again",
        kept="no pod of a queued namespace comes in without having been judged",
        since=Since.END,
        reviews=Reviews.NONE,
    ),
    "the webhooks' packets to the API server are lost": Fault(
        does=cut_off(at_the_door, Weather.LOST),
        seen="nothing; pods are judged by what the webhooks have read before",
        kept="the API server asks them all the same; they read what they have missed once it is over",
    ),
    "the leading controller's packets to the API server are lost": Fault(
        does=cut_off(leading, Weather.LOST),
        seen="nothing is granted until the other controller leads",
        kept="the leader stops by itself before the lease ends",
        quick=True,
    ),
    "the leading controller's connections to the API server are reset": Fault(
        does=cut_off(leading, Weather.CUT),
        seen="nothing is granted until the other controller leads",
        kept="the leader stops by itself before the lease ends",
    ),
    "the packets to the API server of the controller that stands by are lost": Fault(
        does=cut_off(standing_by, Weather.LOST),
        seen="nothing",
        kept="it does not take the lease, of which it hears nothing; the leader does not need it",
    ),
    "all of Muster's packets to the API server are lost": Fault(
        does=cut_off(everybody, Weather.LOST),
        seen="nothing is granted; pods are judged by what the webhooks have read before",
        kept="leaders stop by themselves before the lease ends",
        since=Since.END,
    ),
    "all of Muster's packets to the API server are late by 0.5 s": Fault(
        does=cut_off(everybody, Weather.LATE),
        seen="gangs start later",
        kept="the lease is renewed in time nevertheless",
    ),
    "the controllers' packets to PostgreSQL are lost": Fault(
        does=books_cut_off(leader=False, weather=Weather.LOST),
        seen="gangs wait with `LedgerUnavailable`; pods are judged as ever",
        kept="no gate opens without a row; what ends meanwhile is booked with the time at which it was seen",
        since=Since.END,
    ),
    "the leading controller's packets to PostgreSQL are lost": Fault(
        does=books_cut_off(leader=True, weather=Weather.LOST),
        seen="gangs wait with `LedgerUnavailable`: the leader keeps its lease, and what it has not booked yet",
        kept="no gate opens without a row",
        since=Since.END,
    ),
    "the controllers' connections to PostgreSQL are reset": Fault(
        does=books_cut_off(leader=False, weather=Weather.CUT),
        seen="gangs wait with `LedgerUnavailable`; pods are judged as ever",
        kept="no gate opens without a row; what ends meanwhile is booked with the time at which it was seen",
        since=Since.END,
        quick=True,
    ),
    "the controllers' packets to PostgreSQL are late by 0.5 s": Fault(
        does=books_cut_off(leader=False, weather=Weather.LATE),
        seen="gangs start later",
        kept="no gate opens without a row",
    ),
    "PostgreSQL is killed and started again": Fault(
        does=postgres_killed,
        seen="gangs wait with `LedgerUnavailable`; pods are judged as ever",
        kept="a commit that was answered is there afterwards",
        since=Since.END,
    ),
    "all replicas are restarted, one after the other": Fault(
        does=everybody_restarted,
        seen="nothing",
        kept="the leader gives its lease back; a webhook answers until the Service sends it nothing more",
        since=Since.END,
    ),
    "the certificate of one webhook of three expires": Fault(
        does=expired(0),
        seen="pods that it is asked about are refused, until the Service drops it; Jobs try again",
        kept="the other two answer",
        reviews=Reviews.SOME,
    ),
    "the certificates of all webhooks expire": Fault(
        does=expired(*range(WEBHOOKS)),
        seen="pods of queued namespaces are refused until there is a new one; Jobs try again",
        kept="no pod of a queued namespace comes in without having been judged",
        since=Since.END,
        reviews=Reviews.NONE,
    ),
    "the disk of PostgreSQL is full": Fault(
        does=disk_filled,
        seen="gangs wait with `LedgerUnavailable`; pods are judged as ever",
        kept="what was not written is written once there is room",
        since=Since.END,
    ),
    "the CRDs are upgraded, and go back": Fault(
        does=crds_upgraded,
        seen="nothing",
        kept="objects and the watches over them outlive it",
    ),
    "the clock of the leading controller jumps back by an hour, and forth again": Fault(
        does=clock_jumps(-HOUR),
        seen="nothing; the metric `muster_clock_behind_books_seconds` tells",
        kept="the books' time never goes back",
    ),
    "the clock of the leading controller jumps forth by an hour, and back again": Fault(
        does=clock_jumps(HOUR),
        seen="gangs that are just starting may be taken back, as out of time, and start again after a back-off",
        kept="the books' time never goes back; the hour counts as used for who held devices in it",
        takes_back=True,
    ),
    "the controllers are upgraded, one after the other, from the schema before": Fault(
        does=upgraded,
        seen="nothing is granted from the upgrade of the schema until the new version leads",
        kept="the new schema refuses what the old leader writes, which ends its term; started again, it refuses it",
    ),
    "the webhooks are upgraded, one after the other, beside controllers that are already": Fault(
        does=webhooks_upgraded,
        seen="nothing",
        kept="what a webhook of before has let in, a controller of this version judges",
        since=Since.END,
    ),
}
