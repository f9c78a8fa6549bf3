"""Containers of the image with what deploy/manifests asks for, on this machine's network, beside a control plane."""

import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests import tomls
from tests.controlplane import ControlPlane
from tests.controlplane.observing import eventually
from tests.controlplane.processes import Family, FreePorts, Program, tail
from tests.e2e import rights
from tests.image import pods
from tests.image.engines import Engine

HOST = "127.0.0.1"
PORTS = {"metrics": "MUSTER_METRICS_PORT", "webhook": "MUSTER_WEBHOOK_PORT", "pages": "MUSTER_DASHBOARD_PORT"}
"""The variables of a container's ports, by the names that the chart gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One that runs. ports: by the chart's names."""

    engine: Engine
    name: str
    program: Program
    ports: Mapping[str, int]

    def asked(self, *words: str, ends: tuple[int, ...] = (0,)) -> str:
        """Run a command in it, as `kubectl exec` does."""
        return self.engine.asked("exec", self.name, *words, ends=ends).stdout

    def get(self, port: str, path: str, *, token: str = "") -> tuple[int, str]:
        """Ask one of its ports over plain HTTP."""
        request = urllib.request.Request(f"http://{HOST}:{self.ports[port]}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self) -> None:
        """Wait for what the chart's readiness probe waits for."""
        eventually(lambda: self.program.ended or self.get("metrics", "/readyz")[0] == 200, what=f"{self.name} is ready")
        assert not self.program.ended, f"{self.name} ended:\n{self.log}"

    @property
    def log(self) -> str:
        return tail(self.program.log, 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """Starts containers of an image for a control plane. folder: for files that they are given."""

    engine: Engine
    image: str
    control_plane: ControlPlane
    family: Family
    folder: Path

    def start(
        self, deployment: str, *, secrets: Mapping[str, str], settings: Mapping[str, Any], ports: Mapping[str, int]
    ) -> Container:
        """Start the container of a Deployment.

        settings: those that cannot hold on a machine without Services. ports: some that it is to have, by name.
        """
        manifest = pods.deployment(deployment)
        pod = manifest["spec"]["template"]["spec"]
        [container] = pod["containers"]
        folder = self.folder / deployment
        with FreePorts() as free:
            ports = {port["name"]: free.pick() for port in container["ports"]} | dict(ports)
        api_server = urlsplit(self.control_plane.server)
        given = pods.Given(
            files=self._configured(pod, settings, folder) | {"account": self._account(pod, folder)},
            secrets=secrets,
            changed={
                "KUBERNETES_SERVICE_HOST": str(api_server.hostname),
                "KUBERNETES_SERVICE_PORT": str(api_server.port),
                **{PORTS[name]: str(port) for name, port in ports.items()},
            },
        )
        command = [*self.engine.command, *self.engine.running, f"--name={deployment}", *pods.flags(pod, given)]
        program = self.family.start(deployment, [*command, self.image, *pods.words(pod)])
        return Container(engine=self.engine, name=deployment, program=program, ports=ports)

    def _configured(self, pod: Any, settings: Mapping[str, Any], folder: Path) -> dict[str, Path]:
        """Write the ConfigMap of a pod, with other settings in some sections."""
        [name] = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        place = folder / "settings"
        place.mkdir(parents=True)
        for file, text in pods.configured(name).items():
            known = tomllib.loads(text)
            changed = {section: {**known.get(section, {}), **values} for section, values in settings.items()}
            (place / file).write_text(tomls.dumped({**known, **changed}))
        return {name: place}

    def _account(self, pod: Any, folder: Path) -> Path:
        """Write what a pod finds of its account."""
        account = f"/api/v1/namespaces/{pods.NAMESPACE}/serviceaccounts/{pod['serviceAccountName']}"
        found = {
            "token": rights.token(self.control_plane, account),
            "ca.crt": self.control_plane.authority,
            "namespace": pods.NAMESPACE,
        }
        place = folder / "account"
        place.mkdir(parents=True)
        for name, text in found.items():
            (place / name).write_text(text)
        return place
