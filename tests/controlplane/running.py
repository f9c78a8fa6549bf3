"""Runs one control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK, on free ports.

Used by tests, the demo and the benchmarks, from plain threads and from asyncio (through `asyncio.to_thread`): it
starts processes, waits for them and keeps no loop of its own. It leaves nothing behind: `stop` ends the programs and
removes their folder, and if this Python is killed instead, module `leash` does.
"""

import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError

from tests.controlplane import building, flags, kubelets, users
from tests.controlplane.clients import ApiError, Client
from tests.controlplane.processes import Family, FreePorts, Program, tail

FLAGS: Mapping[str, Callable[[flags.Layout, flags.Options], list[str]]] = {
    "etcd": flags.etcd,
    "kube-apiserver": flags.kube_apiserver,
    "kube-scheduler": flags.kube_scheduler,
    "kube-controller-manager": flags.kube_controller_manager,
    "kwok": flags.kwok,
}
SECONDS_TO_START = 90.0
ATTEMPTS = 3
BOOTSTRAP_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:kube-scheduler"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class StartFailed(Exception):  # noqa: N818 named by what happened
    """A program ended or was not ready in time; the message ends with its log's last lines."""


class CommandFailed(Exception):  # noqa: N818
    """kubectl ended with an error; the message is what it wrote."""


class ControlPlane:
    """One control plane, usable as a context manager.

    `users` adds users (name → groups) to those of module `users`. `flags` adds words to a program's command line, by
    the program's name. `durable` lets etcd wait for the disk, for tests of what a power cut leaves. `kubelets` has KWOK
    serve logs, commands and ports of pods, as module `kubelets` says.
    """

    def __init__(
        self,
        version: str = building.DEFAULT_VERSION,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        extra_users: Mapping[str, tuple[str, ...]] | None = None,
        extra_flags: Mapping[str, Sequence[str]] | None = None,
        raised_limits: bool = True,
        durable: bool = False,
        kubelets: bool = False,
    ) -> None:
        self.version = version
        self._options = flags.Options(
            feature_gates=feature_gates or {},
            runtime_config=runtime_config or {},
            raised_limits=raised_limits,
            durable=durable,
            kubelets=kubelets,
        )
        self._extra_flags = extra_flags or {}
        self._users = users.Users.drawn(extra_users or {})
        self._binaries: building.Binaries | None = None
        self._family: Family | None = None
        self._layout: flags.Layout | None = None
        self._tls: ssl.SSLContext | None = None
        self._programs: dict[str, Program] = {}

    def start(self) -> Self:
        """Build if need be, start everything, and return once all of it can be used."""
        self._binaries = building.build(self.version)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start_all()
            except StartFailed as error:
                self.stop()
                # Between our choice of a port and the program's bind somebody else may take it.
                if "address already in use" not in str(error) or attempt == ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def stop(self) -> None:
        """Kill all programs, since nothing of them is kept, and remove the folder.

        Asked to end, the API server waits for who still watches, for ten seconds.
        """
        while self._programs:
            self._programs.popitem()[1].end(hard=True)
        if self._family is not None:
            self._family.end()
        self._family = self._layout = self._tls = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def server(self) -> str:
        return self._running().server

    @property
    def authority(self) -> str:
        """The certificate, in PEM, that verifies the API server."""
        return self._running().authority.read_text()

    @property
    def kubelet_port(self) -> int:
        """Where KWOK serves for the nodes whose status says so, if it does."""
        return self._running().kubelet_port

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of `admin`, who may do everything."""
        return self.kubeconfig_for(users.ADMIN)

    def kubeconfig_for(self, user: str, *, namespace: str = "default") -> Path:
        """Write the kubeconfig of one of the users and return its path."""
        path = self._running().kubeconfig(user)
        path.parent.mkdir(exist_ok=True)
        text = users.kubeconfig(client=self.client(user), user=user, authority=self.authority, namespace=namespace)
        return users.write_secret(path, text)

    def client(self, user: str = users.ADMIN) -> Client:
        """Return a client that acts as this user."""
        layout = self._running()
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(layout.authority))
        return Client(server=layout.server, token=self._users.token(user), tls=self._tls)

    def kubectl(self, *arguments: str, input: str | None = None, user: str = users.ADMIN) -> str:  # noqa: A002 subprocess's word
        """Run kubectl as a user and return what it wrote to its output."""
        path = self.kubeconfig if user == users.ADMIN else self.kubeconfig_for(user)
        done = subprocess.run(
            [*self.kubectl_command, *arguments],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            env=self.kubectl_environment(path),
        )
        if done.returncode != 0:
            msg = f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
            raise CommandFailed(msg)
        return done.stdout

    @property
    def kubectl_command(self) -> tuple[str, ...]:
        """The words that start kubectl, for those who run it themselves."""
        assert self._binaries is not None, "start() first"
        return self._binaries.commands["kubectl"]

    def kubectl_environment(self, kubeconfig: Path) -> dict[str, str]:
        """Keep kubectl to this control plane: its discovery cache is named after host and port, and ports return."""
        cache = self._running().folder / "kubectl-cache"
        return {**os.environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(cache), "KUBERC": "off"}

    def restart_apiserver(self, *, hard: bool = False) -> None:
        """End the API server (`hard`: kill -9) and start it on the same port over the same data."""
        self.stop_program("kube-apiserver", hard=hard)
        self.start_program("kube-apiserver")

    def stop_program(self, name: str, *, hard: bool = False) -> None:
        """End one program and leave it ended: a scheduler that is away, an API server that is down."""
        self._programs.pop(name).end(hard=hard)

    def start_program(self, name: str) -> None:
        """Start one program that is not running; returns when the API server is ready, if that is the program."""
        assert self._family is not None, "start() first"
        assert self._binaries is not None
        assert name not in self._programs, f"{name} runs already"
        words = FLAGS[name](self._running(), self._options)
        command = [*self._binaries.commands[name], *words, *self._extra_flags.get(name, ())]
        if name == "kwok":
            # What plays a node holds its lease, and one that has ended kept its successor waiting for 40 s.
            self.client().delete(NODE_LEASES)
            if self._options.kubelets:
                command = [*kubelets.environment(), *command]
        self._programs[name] = self._family.start(name, command)
        if name == "kube-apiserver":
            self._wait_for_apiserver()
            if "kwok" in self._programs:
                # It may look away for a minute after it has lost the API server, and no pod would start meanwhile.
                self.stop_program("kwok")
                self.start_program("kwok")

    def revive(self) -> list[str]:
        """Start again what has ended by itself, as a kubelet does with the pods of a control plane; return the names.

        A kube-scheduler may end once the API server has died and come back: "Scheduler cache is corrupted".
        """
        ended = [name for name, program in self._programs.items() if program.ended]
        for name in ended:
            self.stop_program(name)
            self.start_program(name)
        return ended

    def pid(self, name: str) -> int:
        return self._programs[name].pid

    def logs_tail(self, lines: int = 40) -> dict[str, str]:
        """Return the last lines of each program's log, for a failure's report; nothing once it has stopped."""
        if self._layout is None:
            return {}
        logs = self._layout.folder / "logs"
        return {name: tail(logs / f"{name}.log", lines) for name in FLAGS}

    def _running(self) -> flags.Layout:
        assert self._layout is not None, "the control plane is not running: start() first"
        return self._layout

    def _start_all(self) -> None:
        self._layout = _new_layout()
        self._family = Family(self._layout.folder)
        self._layout.serving_certificate.parent.mkdir()
        users.write_secret(self._layout.tokens, self._users.token_file())
        users.write_secret(self._layout.signing_key, users.signing_key())

        self.start_program("etcd")
        self.start_program("kube-apiserver")
        for user in (users.ADMIN, users.SCHEDULER, users.CONTROLLER_MANAGER, users.KWOK):
            self.kubeconfig_for(user)
        if self._options.kubelets:
            kubelets.define(self.client())
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self.start_program(name)

        # The rest is asynchronous by nature, but a program that refuses its flags shows within a moment.
        self._wait("the default service account", self._accounts_are_made)

    def _wait_for_apiserver(self) -> None:
        self._wait("kube-apiserver's certificate", self._certificate_is_written)
        self._wait("kube-apiserver", self._apiserver_is_ready)

    def _certificate_is_written(self) -> bool:
        """See the self-signed pair and keep its CA: the certificate's own is of no use to verify with."""
        layout = self._running()
        if not layout.serving_certificate.exists():
            return False
        blocks = layout.serving_certificate.read_text().split("-----BEGIN CERTIFICATE-----")
        if len(blocks) < 3:
            return False
        layout.authority.write_text("-----BEGIN CERTIFICATE-----" + blocks[-1])
        return True

    def _apiserver_is_ready(self) -> bool:
        """Be ready only with the bootstrap roles: without its own the scheduler is refused everything and waits."""
        admin = self.client()
        return admin.text("/readyz") == "ok" and admin.find(BOOTSTRAP_ROLES) is not None

    def _accounts_are_made(self) -> bool:
        """Show that the controller manager works: it makes this account."""
        return self.client().find("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_TO_START
        while not _answers(ready):
            for program in self._programs.values():
                if program.ended:
                    msg = f"{program.name} ended:\n{tail(program.log, 30)}"
                    raise StartFailed(msg)
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {name}\n{text}" for name, text in self.logs_tail(15).items())
                msg = f"{what} was not there after {SECONDS_TO_START:.0f} s:\n{logs}"
                raise StartFailed(msg)
            time.sleep(0.1)


def _new_layout() -> flags.Layout:
    folder = Path(tempfile.mkdtemp(prefix="muster-controlplane-"))
    try:
        with FreePorts() as ports:
            return flags.Layout(
                folder=folder,
                etcd_port=ports.pick(),
                peer_port=ports.pick(),
                apiserver_port=ports.pick(),
                kubelet_port=ports.pick(),
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _answers(ready: Callable[[], bool]) -> bool:
    """Ask a server that may not listen yet, or not serve yet."""
    try:
        return ready()
    except (ApiError, URLError, OSError):
        return False
