"""What kubelets serve: logs, commands and ports of containers. KWOK does, from this machine's files and programs.

KWOK only plays containers. Whoever runs a program in the place of one lends it to the pod here, and `kubectl logs`,
`exec` and `port-forward` reach it as on any cluster: by the API server, and by the kubelet that the pod's node names.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane.clients import Client

GROUP = "kwok.x-k8s.io"
KINDS = {"Logs": "logs", "Exec": "execs", "PortForward": "portforwards"}
"""Kinds that KWOK reads what is lent from, and their collections."""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What stands in for the container of a pod.

    log: a file of lines as container runtimes write them (`logged`). environment: of commands that are executed in it.
    ports: of the container, and the port of 127.0.0.1 that each leads to.
    """

    log: Path
    environment: Mapping[str, str]
    ports: Mapping[int, int]


def flags(port: int) -> list[str]:
    """Return what makes KWOK serve as the kubelet of all nodes, over TLS with a certificate that nobody looks at."""
    return [f"--server-address=127.0.0.1:{port}", f"--enable-crds={','.join(KINDS)}"]


def environment() -> list[str]:
    """Return words before KWOK's own: commands that it executes find programs of this Python, and nobody's settings."""
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    return ["/usr/bin/env", "-i", f"PATH={path}", "HOME=/", "LANG=C.UTF-8"]


def status(port: int) -> dict[str, Any]:
    """Return what the status of a node says of its kubelet."""
    return {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


def define(client: Client) -> None:
    """Make the kinds; KWOK checks what stands in them."""
    for kind, collection in KINDS.items():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        own = {"kind": kind, "listKind": f"{kind}List", "plural": collection, "singular": kind.lower()}
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{collection}.{GROUP}"},
            "spec": {"group": GROUP, "names": own, "scope": "Namespaced", "versions": [version]},
        }
        client.apply(f"{CRDS}/{collection}.{GROUP}", crd)


def lend(client: Client, namespace: str, pod: str, loan: Loan) -> None:
    """Have KWOK answer so for the pod's containers, whatever it answered before."""
    targets = [{"ports": [own], "target": {"address": "127.0.0.1", "port": here}} for own, here in loan.ports.items()]
    variables = [{"name": name, "value": value} for name, value in loan.environment.items()]
    specs = {
        "Logs": {"logs": [{"logsFile": str(loan.log)}]},
        "Exec": {"execs": [{"local": {"workDir": str(loan.log.parent), "envs": variables}}]},
        "PortForward": {"forwards": targets},
    }
    for kind, spec in specs.items():
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/{KINDS[kind]}/{pod}"
        client.apply(path, {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": {"name": pod}, "spec": spec})


def logged(text: str, *, at: str) -> str:
    """Return a log as container runtimes write it. at: RFC 3339; the time of all lines."""
    return "".join(f"{at} stderr F {line}\n" for line in text.splitlines())
