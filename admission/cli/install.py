"""`muster install --print`: the plain manifests from the wheel, with the values of this installation."""

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from admission import resources
from admission.cli import apps
from admission.errors import FixError

app = apps.single()

IMAGE = "registry.example.com/muster"
NAMESPACE = "muster-system"
SECRET = "muster-ledger"  # noqa: S105 - its name
"""The three values that installations replace; in deploy/manifests they stand for nothing else."""

FILES = ("rbac.yaml", "muster.yaml")
DASHBOARD = "dashboard.yaml"
MONITORING = "monitoring.yaml"

EPILOG = apps.epilog(
    (
        "muster install --print --image registry.example.com/muster:0.1.0 > muster.yaml",
        "muster install --print --image registry.example.com/muster:0.1.0 --namespace batch --ledger-secret books",
        "muster install --print --image registry.example.com/muster:0.1.0 | kubectl apply --server-side -f -",
    ),
    "It needs no cluster and changes none. The Secret with the ledger's URL is yours to make. The Helm chart can do "
    "more (docs/install.md). Exit codes: 0 done, 2 an option is wrong.",
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_REFERENCE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?")


@app.command(epilog=EPILOG)
def install(
    *,
    printed: Annotated[bool, typer.Option("--print", help="Write them to the standard output.")] = False,
    image: Annotated[str, typer.Option(help="The image, with its tag or digest.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option(help="The namespace that Muster runs in.")] = NAMESPACE,
    ledger_secret: Annotated[
        str, typer.Option(help="Secret there, whose key `url` is the PostgreSQL database's.")
    ] = SECRET,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="The dashboard, too, as `kubectl port-forward` reaches it.")
    ] = False,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="ServiceMonitors and alerts, too: for the Prometheus operator.")
    ] = False,
) -> None:
    """Print the manifests that install Muster, as the Helm chart renders them."""
    if not printed:
        raise FixError("Muster installs nothing by itself: pass --print, and give what it prints to kubectl apply")
    _check("--namespace", namespace, _LABEL, "a namespace's name such as muster-system")
    _check("--ledger-secret", ledger_secret, _LABEL, "a Secret's name such as muster-ledger")
    _check("--image", image, _REFERENCE, "an image such as registry.example.com/muster:0.1.0; none is published yet")
    values = {IMAGE: image, NAMESPACE: namespace, SECRET: ledger_secret}
    optional = {DASHBOARD: dashboard, MONITORING: monitoring}
    files = [*FILES, *(name for name, is_included in optional.items() if is_included)]
    sys.stdout.write("---\n".join(manifests(values, files)))


def manifests(values: dict[str, str], files: Iterable[str]) -> Iterator[str]:
    """Yield the shipped files with the values replaced."""
    for name in files:
        text = (resources.manifests() / name).read_text().partition("\n")[2]
        yield _PLACEHOLDERS.sub(lambda found: values[(found["image"] and IMAGE) or found[0]], text)


_PLACEHOLDERS = re.compile(rf"(?P<image>{re.escape(IMAGE)}:[\w.-]+)|\b({NAMESPACE}|{SECRET})\b")


def _check(option: str, text: str, pattern: re.Pattern[str], expected: str) -> None:
    if not pattern.fullmatch(text):
        raise FixError(f"{option}: {text!r} is not {expected}")
