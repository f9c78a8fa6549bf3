"""Muster against the control plane: controller and webhook as processes, with the rights that the chart gives each.

Where a test names roles, or one port for probes, there is one process for them.
"""

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from admission import cli
from admission.ledger.audit.verify import Finding
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Settings
from tests import tomls
from tests.controlplane import ControlPlane
from tests.controlplane.observing import PATIENCE, eventually
from tests.controlplane.processes import Family, FreePorts, Program, run_forked, tail
from tests.e2e import barriers, rights
from tests.e2e.teams import GROUP

ROOT = Path(__file__).parents[2]
SECRET = "/api/v1/namespaces/muster-system/secrets/muster-webhook"
HEADS = "/api/v1/namespaces/muster-system/configmaps/muster-heads"
HEADS_KEY = "/api/v1/namespaces/muster-system/secrets/muster-heads-key"
COMMAND = str(Path(sys.executable).with_name("muster"))
IMPORTED = ("tests.e2e.preloaded",)
"""What the process has imported that this work tree's programs are forked from: that alone takes seconds."""

# Short, so that a successor need not be waited for long; the same order of magnitudes as the defaults.
SETTINGS: dict[str, Any] = {
    "log_format": "text",
    "lease": {"duration": 4.0, "renew_deadline": 3.0, "retry": 0.5},
    "controller": {"resync": 2.0},
    "webhook": {"linger": 0.0},
}

SIGNS = {"controller": "this process leads", "webhook": "the webhook listens", "dashboard": "the dashboard listens"}
"""What the log says once a role is at work."""

REGISTERED = "webhooks are registered"
"""What the log of a controller says once the API server reaches the webhook."""

ROLES = ("controller", "webhook")
"""What there is unless a test says otherwise, each as a process."""

_OWN_TRACEBACK = re.compile(rf'Traceback [^\n]*\n(?:  [^\n]*\n)*?  File "{re.escape(str(ROOT))}/admission/')
"""Of this Muster's code. Where the machine is starved, libraries tell of connections that were cut off."""

UNDECIDED = "a gang could not be dealt with"
"""What the log says of a gang that an error kept from being decided."""

PROTECTION = ("devicetaintrules", "validatingadmissionpolicies", "validatingadmissionpolicybindings")
"""Of which kinds the objects are that keep others off devices: a fence's and coverage's."""

CONFIGURED = (
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations", *PROTECTION[1:]),
    *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
)
"""Of which kinds the objects named `muster` are."""

LONGEST_DEFECT = 4_000
"""Characters of a log that are shown."""

SECONDS_FROZEN = 15.0
SECONDS_DEPOSED = 2.0
"""For how long a leader stands still at the most, and goes on without knowing of its successor."""


class Muster:
    """One installation: settings, ledger and logs in a folder; its processes may come and go.

    It is cleaned away once it is left.
    """

    def __init__(
        self, control_plane: ControlPlane, *, database: str = "", granting: bool = True, **settings: Any
    ) -> None:
        """Write the settings, and grant the rights.

        database: the URL of a ledger; without it, a file of its own. granting: whether to give the rights of the chart;
        else somebody has installed them, and `settings` have a kubeconfig. settings: beside those that all tests have.
        """
        self._control_plane = control_plane
        self._folder = Path(tempfile.mkdtemp(prefix="muster-e2e-"))
        self._family = Family(self._folder)
        self._program: Program | None = None
        self._webhook: Program | None = None
        self._starts = 0
        self.words: Sequence[str] = (COMMAND,)
        """What starts the program; a test may run another version of it."""
        self.deadly = False
        """Whether the process that was started last will kill itself."""
        self._granting = granting
        self._tends: bool | None = None
        self._deprived = False
        self._apiserver = control_plane.pid("kube-apiserver")
        self.database = database or f"sqlite+aiosqlite:///{self._folder / 'data' / 'ledger.sqlite3'}"
        self._config = self._folder / "muster.toml"
        self._webhook_config = self._folder / "webhook.toml"
        self.kubeconfig = Path(settings.get("kubeconfig") or self._folder / "kubeconfig")
        """With the token that the process has; of two, the controller."""
        with FreePorts() as free:
            self._port = free.pick()
        self.configure(**settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.clean()

    def configure(self, **settings: Any) -> None:
        """Write the settings that the next start reads, and grant the rights that the chart gives for them."""
        if self._granting and self._tends != rights.tends(settings):
            self._tends = rights.tends(settings)
            rights.grant(self._control_plane, tends=self._tends)
        roles = settings.get("roles", ROLES)
        if not self.kubeconfig.exists():
            rights.kubeconfig(self._control_plane, self.kubeconfig, account=rights.account_of(roles))
        own = {"kubeconfig": str(self.kubeconfig), "ledger": {"url": self.database}}
        chosen = {**SETTINGS, **own, **settings}
        self._apart = not {"roles", "metrics"} & settings.keys()
        if self._apart:
            chosen["webhook"] = {"port": self._port, **chosen["webhook"]}
            chosen["controller"] = {**chosen["controller"], "user": rights.USER}
            webhook = self._folder / "webhook-kubeconfig"
            if not webhook.exists():
                rights.kubeconfig(self._control_plane, webhook, account=rights.WEBHOOK)
            known = {name: value for name, value in chosen.items() if name != "ledger"}
            self._webhook_config.write_text(tomls.dumped({**known, "kubeconfig": str(webhook), "roles": ["webhook"]}))
            chosen["roles"] = ["controller"]
        self._config.write_text(tomls.dumped(chosen))
        registers = "controller" in roles and chosen["webhook"].get("register", True)
        self._signs = [*([REGISTERED] if registers else ()), *(SIGNS[role] for role in roles)]

    def start(self, *, killed_at: str = "", within: float = PATIENCE) -> Self:
        """Start `muster serve` and wait until it leads and its webhooks are registered.

        killed_at: `WHAT:N`, the process, of two the controller, kills itself (-9) when it is about to make that write,
        as `killing` knows it. A webhook that runs goes on.
        """
        self._run(killed_at)
        return self.wait(within=within)

    def wait(self, *, within: float = PATIENCE) -> Self:
        """Wait until it leads and its webhooks are registered, or it has killed itself."""
        eventually(lambda: self.program.ended or self._leads(), what=self._missing("Muster leads"), within=within)
        assert self.deadly or not self.program.ended, f"muster ended:\n{tail(self.program.log, 40)}"
        return self

    def launch(self) -> None:
        """Start `muster serve` and do not wait for anything."""
        self._run("")

    def overtake(self, *, within: float = PATIENCE) -> Self:
        """Freeze the leader until another process leads, let it go on for a moment as one that was deposed, and end it.

        Where it takes long, as when the frozen process has locked the ledger, the other one leads only after its end.
        Or it has ended as well, since the API server was away when it started.
        """
        deposed = self.program
        os.kill(deposed.pid, signal.SIGSTOP)
        self._run("")
        deadline = time.monotonic() + SECONDS_FROZEN
        while not self._leads() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(deposed.pid, signal.SIGCONT)
        time.sleep(SECONDS_DEPOSED)
        deposed.end(hard=True)
        what = self._missing("another process leads")
        eventually(lambda: self.program.ended or self._leads(), what=what, within=within)
        return self

    def _run(self, killed_at: str) -> None:
        self._starts += 1
        self.deadly = bool(killed_at)
        name = f"muster-{self._starts}"
        if killed_at:
            words = [sys.executable, "-m", "tests.e2e.killing", killed_at, "serve", "--config", str(self._config)]
            self._program = self._family.start(name, words)
        else:
            self._program = self._serve(name, self._config)
        if self._apart and (self._webhook is None or self._webhook.ended):
            self._webhook = self._serve(f"{name}-webhook", self._webhook_config)

    def _serve(self, name: str, config: Path) -> Program:
        """Start `muster serve`; a fork where it is the program of this work tree, which takes seconds to import."""
        words = [*self.words, "serve", "--config", str(config)]
        if self.words == (COMMAND,):
            return self._family.fork(name, cli.main, words, imported=IMPORTED)
        return self._family.start(name, words)

    def _leads(self) -> bool:
        return all(sign in self.log for sign in self._signs) and (not self._apart or self._webhook_is_ready())

    def _missing(self, what: str) -> Callable[[], str]:
        """Return what tells, under a test that has waited for a start in vain, which signs of it are not there."""

        def told() -> str:
            signs = [sign for sign in self._signs if sign not in self.log]
            ready = not self._apart or self._webhook_is_ready()
            return f"{what}: signs that are missing: {signs}, webhook ready: {ready}\n{self.log[-LONGEST_DEFECT:]}"

        return told

    def _webhook_is_ready(self) -> bool:
        assert self._webhook is None or not self._webhook.ended, f"the webhook ended:\n{tail(self._webhook.log, 40)}"
        anybody = ssl._create_unverified_context()  # noqa: S323 - a test looks, and the API server verifies
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=anybody, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    @property
    def config(self) -> Path:
        """The settings that the next start reads."""
        return self._config

    @property
    def program(self) -> Program:
        """The process; of two, the controller."""
        assert self._program is not None
        return self._program

    @property
    def some_ended(self) -> bool:
        """Whether a process has ended that was started last."""
        return any(program.ended for program in (self._program, self._webhook) if program is not None)

    @property
    def log(self) -> str:
        """What the processes that were started last have logged; of two, first the controller."""
        running = [self.program, *([self._webhook] if self._webhook is not None else ())]
        return "".join(program.log.read_text(errors="replace") for program in running)

    @property
    def logs(self) -> str:
        """What all processes have logged, one after the other."""
        found = sorted((self._family.folder / "logs").glob("muster-*.log"), key=lambda log: log.stat().st_mtime)
        return "".join(log.read_text(errors="replace") for log in found)

    @property
    def refusals(self) -> list[str]:
        """What it has logged of calls that no role allowed it."""
        return [line for line in self.logs.splitlines() if "; grant " in line]

    @property
    def defect(self) -> str:
        """Where its log first tells of an exception that nobody expected; empty where it never does."""
        found = _OWN_TRACEBACK.search(logs := self.logs)
        return logs[found.start() :][:LONGEST_DEFECT] if found else ""

    def end(self, *, hard: bool = False) -> None:
        for program in (self._program, self._webhook):
            if program is not None:
                program.end(hard=hard)

    def unprotect(self) -> None:
        """Start it without a fence and coverage, and wait until nothing is left of what kept others off devices."""
        self.end()
        self.configure()
        self.start()
        served = PROTECTION[self._control_plane.version in barriers.WITHOUT_RULES :]
        shown = ("get", ",".join(served), "--output=name")
        eventually(lambda: "muster-" not in self._control_plane.kubectl(*shown), what="nothing protects devices")

    def clean(self) -> None:
        """End the process, and remove its webhooks, its authorities, its heads, what governed it, and all files.

        Fails, when all is removed, where it has logged a defect or a right that it lacks.
        """
        self.end()
        lacking, defect = self.refusals, self.defect
        undecided = [line for line in self.logs.splitlines() if UNDECIDED in line]
        client = self._control_plane.client()
        for kind in CONFIGURED:
            client.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}/muster")
        for path in (SECRET, HEADS, HEADS_KEY):
            client.delete(path)
        for kind in ("queues", "claimpolicies", "meters"):
            for left in (client.find(f"{GROUP}/{kind}") or {"items": []})["items"]:
                path = f"{GROUP}/{kind}/{left['metadata']['name']}"
                client.delete(path)
                if client.find(path):  # nobody is there to let a queue go
                    client.merge_patch(path, {"metadata": {"finalizers": None}})
        self._family.end()
        shutil.rmtree(self._folder, ignore_errors=True)
        assert not defect, defect
        assert not undecided, undecided[0]
        assert self._is_refused or not lacking, f"rights are missing: {lacking[:3]}"

    @property
    def _is_refused(self) -> bool:
        """Whether it was refused what it is granted otherwise; an API server that starts refuses everybody a moment.

        Or somebody else has granted it, and takes it away again.
        """
        return self._deprived or not self._granting or self._control_plane.pid("kube-apiserver") != self._apiserver

    @contextmanager
    def deprived(self, *resources: str) -> Iterator[None]:
        """Take the rights to some resources out of its roles for a while, as somebody may who narrows them.

        Watches that run go on: the API server asks about rights when one begins.
        """
        self._deprived = True
        rights.grant(self._control_plane, tends=bool(self._tends), but=resources)
        try:
            yield
        finally:
            rights.grant(self._control_plane, tends=bool(self._tends))

    def command(self, *words: str) -> str:
        """Run a `muster` command as the admin, and return what it prints."""
        environment = {"KUBECONFIG": str(self._control_plane.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": "/root"}
        result = _run([COMMAND, *words], environment)
        return result.stdout + result.stderr

    def doctor(self, *words: str, by_itself: bool = False) -> tuple[int, dict[str, list[tuple[str, str]]]]:
        """Run `muster doctor` with this Muster's settings; return its exit code, and what it finds.

        by_itself: under this Muster's account, as in its pod; else as the admin.
        """
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
        asked = ["doctor", "--config", str(self._config), *words]
        if not by_itself:
            asked += ["--kubeconfig", str(self._control_plane.kubeconfig)]
        done = _run([COMMAND, *asked, "--format", "json"], environment)
        found: dict[str, list[tuple[str, str]]] = {}
        for one in json.loads(done.stdout or "{}").get("findings", ()):
            found.setdefault(one["check"], []).append((one["verdict"], one["message"]))
        assert found, done.stdout + done.stderr
        return done.returncode, found

    def ledger(self, command: str, *words: str) -> str:
        return self.command("ledger", command, "--database", self.database, *words)

    def wrong_books(self) -> Finding | None:
        """Verify the books as `muster ledger verify` does, which takes seconds to start; return what is wrong."""

        async def found() -> Finding | None:
            async with SqlLedger.open(self.database, Settings().ledger.cluster) as ledger:
                return (await ledger.verify()).finding

        return asyncio.run(found())

    def statement(self, queue: str) -> list[Any]:
        """Return the lines of a queue's statement."""
        lines: list[Any] = json.loads(self.ledger("statement", queue, "--format", "json"))["lines"]
        return lines

    def entries(self, workload: str, kind: str) -> list[Any]:
        """Return the transactions of one kind about a workload's gangs, in order; of a ledger that is a file.

        workload: `namespace/name`.
        """
        question = "SELECT * FROM transactions WHERE kind = ? AND gang LIKE ? ORDER BY sequence"
        return self.rows(question, kind, f"{workload}-%")

    def rows(self, question: str, *parameters: str) -> list[Any]:
        """Ask the tables of a ledger that is a file."""
        connection = sqlite3.connect(f"file:{self.database.partition('///')[2]}?mode=ro", uri=True)
        try:
            connection.row_factory = sqlite3.Row
            return connection.execute(question, parameters).fetchall()
        finally:
            connection.close()


def _run(words: Sequence[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return run_forked(cli.main, words, environment=environment, imported=IMPORTED)


@contextmanager
def running(control_plane: ControlPlane, **settings: Any) -> Iterator[Muster]:
    """Yield a Muster that runs, and leave nothing of it, nor of its fence and coverage. settings: as Muster's."""
    with Muster(control_plane, **settings) as muster:
        yield muster.start()
        if settings.keys() & {"fence", "coverage"}:
            muster.unprotect()
