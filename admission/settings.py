"""Settings: every value that an operator may choose, with its meaning and default.

They are read from a YAML file (`muster serve --config FILE`), over the defaults below; options of the command line go
before both. Only `app` and `cli` read them; everything else gets what it needs as arguments.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from admission.errors import MendError


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTPS server that the API server asks."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    url: str | None = None
    """Base URL under which the API server reaches it, `https://host:port`; by default that of host and port."""
    service: str | None = None
    """`namespace/name:port` of a Service that the API server reaches it by, instead of a URL."""
    names: tuple[str, ...] = ()
    """Further DNS names and addresses for its certificate."""
    secret: str = "muster-webhook"  # noqa: S105 - its name
    """Name of the Secret, in the lease's namespace, that the authorities of its certificates are kept in."""
    authority_days: Annotated[float, msgspec.Meta(gt=0)] = 90.0
    """Days that an authority lasts; a third of that before its end the next one is made."""
    leaf_hours: Annotated[float, msgspec.Meta(gt=0)] = 168.0
    """Hours that a certificate lasts; it is renewed at half of them."""
    certificate: str | None = None
    """File of a certificate that others keep fresh, as cert-manager does; None: Muster makes its own."""
    key: str | None = None
    """File of its key."""
    authority: str | None = None
    """File of the authorities that the API server is to trust; None: with `certificate`, others write the caBundle."""
    inject: str | None = None
    """`namespace/name` of a Certificate of cert-manager, whose authority cert-manager writes as the caBundle."""
    reviews: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Reviews that each worker reads or answers at a time; the API server is told to ask again for more (429)."""
    workers: int = 1
    """Processes that answer reviews on the one port; each watches the cluster by itself and needs the memory for it."""
    linger: Annotated[float, msgspec.Meta(ge=0)] = 3.0
    """Seconds for which a stopping server still takes new connections, until the Service no longer sends any."""
    register: bool = True
    """Whether Muster writes the webhook configurations; off when Helm or others do."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plain HTTP for Prometheus and probes."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: the webhook's server alone serves them, and a controller without a webhook serves none."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The books."""

    url: str = "sqlite+aiosqlite:///muster.sqlite3"
    """The database: `sqlite:///…`, or `postgresql://…` with the parameters that libpq knows (`sslmode`, …)."""
    cluster: str = "default"
    """The name of this cluster in it; several clusters may share one database."""
    migrate: bool = True
    """Whether `serve` brings the schema up to date before it starts."""
    open_days: Annotated[int, msgspec.Meta(ge=0)] = 7
    """Days of the books that stay open: `muster ledger close` refuses to close later ones."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leader's lease (coordination.k8s.io)."""

    namespace: str = "muster-system"
    name: str = "muster-controller"
    duration: float = 15.0
    """Seconds after which a silent leader is replaced."""
    renew_deadline: float = 10.0
    """Seconds after which a leader that cannot renew stops by itself; less than `duration`."""
    retry: float = 2.0
    """Seconds between two tries."""


class Controller(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leader's loop."""

    resync: float = 15.0
    """Seconds after which a cycle runs though nothing has changed."""
    debounce: float = 0.05
    """Seconds to wait for more changes before a cycle."""
    steps: int = 50_000
    """Bound of the planner's search, per gang and question."""
    writes: int = 32
    """Pods that are changed at the same time."""
    profile: str | float = "auto"
    """Which Kubernetes' kube-scheduler to predict: `1.36`, `1.37`, or `auto`, that of the API server's version."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them."""

    roles: tuple[str, ...] = ("webhook", "controller")
    """What this process does."""
    kubeconfig: str | None = None
    """None: $KUBECONFIG, else the service account of the pod, else ~/.kube/config."""
    install_crds: bool = True
    """Whether `serve` applies Muster's CRDs at its start."""
    fence: tuple[str, ...] = ()
    """Drivers whose devices shall be handed out through Muster's queues alone: kube-scheduler gives them to nobody else
    (docs/placement.md)."""
    coverage: bool = False
    """Whether Muster may allocate devices without a fence where its webhook sees every pod of the cluster; it then
    keeps claims out of the namespaces that the webhook spares."""
    log_level: str = "info"
    log_format: str = "auto"
    """`json`, `text`, or `auto`: text on a terminal, JSON elsewhere."""
    webhook: Webhook = Webhook()
    metrics: Metrics = Metrics()
    ledger: Ledger = Ledger()
    lease: Lease = Lease()
    controller: Controller = Controller()


ROLES = frozenset({"webhook", "controller"})
PROFILES = ("auto", "1.36", "1.37")
MOST_WORKERS = 64

_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DRIVER = 63


def read(values: Mapping[str, Any]) -> Settings:
    """Return settings from a parsed YAML mapping. Raises MendError naming the setting that is wrong."""
    try:
        settings = msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise MendError(f"settings: {error}") from error
    unknown = sorted(set(settings.roles) - ROLES)
    if unknown or not settings.roles:
        raise MendError(f"settings: roles: {', '.join(unknown) or '(none)'}: choose from {', '.join(sorted(ROLES))}")
    if str(settings.controller.profile) not in PROFILES:
        raise MendError(f"settings: controller.profile: {settings.controller.profile}: choose {', '.join(PROFILES)}")
    _check_drivers(settings.fence)
    _check_files(settings.webhook)
    _check_workers(settings)
    if not 0 < settings.lease.retry < settings.lease.renew_deadline < settings.lease.duration:
        raise MendError("settings: lease: retry < renew_deadline < duration must hold, all above 0")
    return settings


def _check_files(webhook: Webhook) -> None:
    if (webhook.certificate is None) != (webhook.key is None):
        raise MendError("settings: webhook: certificate and key are files that go together; name both, or neither")
    if webhook.certificate is None and (webhook.authority or webhook.inject):
        raise MendError("settings: webhook: authority and inject are for a certificate from a file; name that, too")
    if webhook.authority and webhook.inject:
        raise MendError("settings: webhook: either Muster writes the caBundle (authority) or cert-manager (inject)")


def _check_workers(settings: Settings) -> None:
    workers = settings.webhook.workers
    if not 1 <= workers <= MOST_WORKERS:
        raise MendError(f"settings: webhook.workers: {workers}: choose a number from 1 to {MOST_WORKERS}")
    if workers > 1 and "webhook" not in settings.roles:
        raise MendError(f"settings: webhook.workers: {workers}: only the role webhook has workers; add it, or leave 1")


def _check_drivers(fence: Sequence[str]) -> None:
    for driver in fence:
        if len(driver) > _LONGEST_DRIVER or not _DRIVER.fullmatch(driver):
            raise MendError(
                f"settings: fence: {driver!r} is no name of a DRA driver such as gpu.example.com;"
                " `kubectl get resourceslices` shows the drivers that there are"
            )
        if fence.count(driver) > 1:
            raise MendError(f"settings: fence: {driver} stands there twice; leave one out")
