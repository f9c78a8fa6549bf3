"""The settings: every value that an operator may choose, with its type, meaning, default.

`load` overrides the defaults by a TOML file, the environment and options, in that order; `docs` generates
config/default.toml and docs/settings.md from the structs and their docstrings (`make settings`). So a new setting needs
a type, a default and a docstring, and a new section a struct with a docstring. Only `app` and `cli` read settings; all
other modules get values as arguments.
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Mark:
    """A property of a setting besides its type, as `Annotated[type, MARK]`."""


LIVE: Final = Mark()
"""A running Muster applies a new value; without this mark, a new value applies from the next start."""

SECRET: Final = Mark()
"""The value may contain a password, which is masked wherever it is shown."""

__all__ = [
    "Dashboard",
    "Heads",
    "Ledger",
    "Metrics",
    "Prometheus",
    "Settings",
    "Usage",
    "live",
    "load",
    "redaction",
    "schema",
]


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTPS server that the API server asks."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 0
    """Port to listen on; 0 takes a free one."""
    url: str | None = None
    """Base URL under which the API server reaches it, `https://host:port`; without one, that of host and port."""
    service: str | None = None
    """`namespace/name:port` of a Service that the API server reaches it by; it goes before the URL."""
    names: tuple[str, ...] = ()
    """Further DNS names and addresses for its certificate."""
    secret: str = "muster-webhook"  # noqa: S105 - its name
    """Name of the Secret, in the lease's namespace, that the authorities of its certificates are kept in
    (docs/webhook.md)."""
    authority_days: Annotated[float, msgspec.Meta(gt=0)] = 90.0
    """Days that an authority lasts; a third of that before its end the next one is made."""
    leaf_hours: Annotated[float, msgspec.Meta(gt=0)] = 168.0
    """Hours that a certificate lasts; it is renewed at half of them."""
    certificate: str | None = None
    """File of a certificate that others keep fresh, as cert-manager does; without one, Muster makes its own."""
    key: str | None = None
    """File of that certificate's key."""
    authority: str | None = None
    """File of the authorities that the API server is to trust with `certificate`; without one, and without `inject`,
    the caBundle is left to others."""
    inject: str | None = None
    """`namespace/name` of a Certificate of cert-manager, whose authority cert-manager writes as the caBundle."""
    reviews: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Reviews that each worker reads or answers at a time; the API server is told to ask again for more (429)."""
    body_bytes: Annotated[int, msgspec.Meta(ge=16_777_216)] = 67_108_864
    """Bytes that the bodies of these reviews hold together; the API server is told to ask again for more (429)."""
    connections: Annotated[int, msgspec.Meta(ge=16)] = 512
    """Connections that each worker keeps open at a time, of up to 0.3 MiB each; a new one takes the place of one that
    never was the API server's, the oldest first (docs/webhook.md)."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Processes that answer reviews on the one port; each watches the cluster by itself and needs the memory for it."""
    linger: Seconds = 3.0
    """Seconds for which a stopping server still takes new connections, until the Service no longer sends any."""
    register: bool = True
    """Whether the controller writes the webhook configurations; off when Helm or others do, which know no secret part
    of the paths (docs/webhook.md)."""

    @property
    def all_names(self) -> list[str]:
        """The names in its own certificate: its addresses, its Service, and those in `names`."""
        names = {"localhost", "127.0.0.1", *self.names}
        if self.host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            names.add(self.host)
        if self.url:
            names.add(self.url.removeprefix("https://").split("/")[0].rsplit(":", 1)[0].strip("[]"))
        if self.service:
            namespace, _, name = self.service.partition("/")
            names |= {f"{name.split(':')[0]}.{namespace}.svc"}
        return sorted(names)


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plain HTTP for Prometheus and probes."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port | None = None
    """Port for `/metrics`, `/healthz` and `/readyz`; without one, the webhook's server alone serves them, over TLS, and
    a controller without a webhook serves none."""
    allocations: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """The most series of `muster_device_allocation_info`, one for each allocated device; those beyond it are counted by
    `muster_device_allocations_omitted`. Without any, nobody who reaches the port reads names of gangs, claims and pods
    (docs/tasks/used.md)."""
    uuids: tuple[str, ...] = ()
    """The attribute that identifies a driver's devices to exporters, each `driver=attribute`, as
    `gpu.example.com=serial`; of drivers that are not named, `uuid`."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The books."""

    url: Annotated[str, SECRET] = "sqlite+aiosqlite:///muster.sqlite3"
    """The database: `sqlite:////var/lib/muster/ledger.db`, or `postgresql://muster@db.example/muster` with the
    parameters that libpq knows: `sslmode`, `sslrootcert`, `connect_timeout`, `target_session_attrs`, `passfile` … A
    password need not stand in it: `PGPASSWORD` and `PGPASSFILE` are read."""
    cluster: str = "default"
    """The name of this cluster in it; several clusters may share one database."""
    migrate: bool = True
    """Whether `serve` brings the schema up to date before it starts."""
    open_days: Annotated[int, msgspec.Meta(ge=0), LIVE] = 7
    """Days of the books that stay open: `muster ledger close` refuses to close later ones."""


class Heads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signed heads of the books, which prove them from outside of their database (docs/ledger.md)."""

    enabled: bool = True
    """Whether a leader signs the end of the books, and publishes it."""
    secret: str = "muster-heads-key"  # noqa: S105 - its name
    """Name of the Secret, in the lease's namespace, with the key that signs and the public keys of before."""
    config_map: str = "muster-heads"
    """Name of the ConfigMap, in the lease's namespace, that heads and public keys are published in."""
    key_days: Annotated[float, msgspec.Meta(gt=0)] = 90.0
    """Days that a key signs; then another one is made."""
    interval: Annotated[float, msgspec.Meta(ge=1)] = 60.0
    """Seconds, at least, between two heads of books that grow; at marks, closings and a leader's start, at once."""
    file: str | None = None
    """A file that heads are appended to as well, a line of JSON each."""
    url: Annotated[str | None, SECRET] = None
    """A URL, `https://…`, that each head is sent to as well, by POST, as JSON."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leader's lease (coordination.k8s.io). `retry` < `renew_deadline` < `duration` must hold."""

    namespace: str = "muster-system"
    """Namespace of the Lease, and of what else Muster keeps for itself."""
    name: str = "muster-controller"
    """Name of the Lease."""
    duration: float = 15.0
    """Seconds after which a silent leader is replaced."""
    renew_deadline: float = 10.0
    """Seconds after which a leader that cannot renew stops by itself."""
    retry: float = 2.0
    """Seconds between two renewals; who stands by looks four times as often."""


class Controller(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leader's loop."""

    user: str | None = None
    """Name by which the API server knows the controller, which alone may open gates, as
    `system:serviceaccount:muster-system:muster`: what a webhook that runs apart has to know. Without it, the webhook's
    own user."""
    resync: Annotated[float, msgspec.Meta(gt=0), LIVE] = 15.0
    """Seconds after which a cycle runs though nothing has changed."""
    debounce: Annotated[Seconds, LIVE] = 0.05
    """Seconds to wait for more changes before a cycle."""
    steps: Annotated[int, msgspec.Meta(ge=1), LIVE] = 50_000
    """Bound of the planner's search, per gang and question."""
    node_order: Annotated[Literal["fewest-free", "least-stranded"], LIVE] = "least-stranded"
    """Which nodes are tried first: `least-stranded`, those where the fewest devices stay without the CPU and memory
    that pods request beside them, or `fewest-free`, those with the fewest free devices (docs/placement.md)."""
    writes: Annotated[int, msgspec.Meta(ge=1), LIVE] = 32
    """Pods that are changed at the same time."""
    profile: str | float = "auto"
    """Which Kubernetes' kube-scheduler to predict: `1.34` to `1.37`, or `auto`: that of the API server's version, which
    is looked at every half minute. After 1.37 this one stands in, and gangs are pinned (docs/concepts.md)."""
    schedulers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("default-scheduler",)
    """Names of the profiles of kube-scheduler that filter as its defaults do. Pods that name another one in
    `schedulerName` get a warning, and their gangs `notSimulated`; `muster doctor --scheduler-config` compares them."""

    @property
    def strands_least(self) -> bool:
        """Return whether nodes are ordered by the devices that a pod strands."""
        return self.node_order == "least-stranded"


class Prometheus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server that is asked what devices did: Prometheus, or another one with its HTTP API.

    A query is PromQL: one series for each of `$uuids`, a regular expression, with the label `uuid` alone, and the value
    of the `$step` before.
    """

    url: Annotated[str | None, SECRET] = None
    """Its URL, without `/api/v1`, as `http://prometheus.monitoring:9090`; without one, nothing is recorded."""
    token_file: str | None = None
    """File with a bearer token that it is shown."""
    authority: str | None = None
    """File of the authorities that vouch for its certificate; without one, those of the system."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=600)] = 30.0
    """Seconds that an answer may take."""
    utilization: tuple[str, ...] = ()
    """Queries for the share of the time in which devices were in use, 0 to 1, each `driver=query`; an empty one asks
    nothing, and devices of its driver do not count for idle gangs. Without one, a driver has that of
    docs/tasks/used.md."""
    memory: tuple[str, ...] = ()
    """The same for the memory in use, in bytes."""
    power: tuple[str, ...] = ()
    """The same for power, in watts."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What allocated devices did, which the leader reads and records beside the books (docs/tasks/used.md)."""

    interval: Annotated[int, msgspec.Meta(ge=1, le=86400)] = 3600
    """Seconds of each time that is recorded; times end at multiples of it, in UTC. A multiple of `step`."""
    step: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 60
    """Seconds of each sample, at least those between two scrapes of the exporter."""
    delay: Annotated[int, msgspec.Meta(ge=1, le=86400)] = 300
    """Seconds after the end of a time before it is read, in which late samples come."""
    prometheus: Prometheus = Prometheus()


class Tracing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces of what becomes of pods (docs/metrics.md). Needs the extra `otel` (docs/install.md)."""

    endpoint: str | None = None
    """URL of a collector that takes OTLP over HTTP, as `http://collector.monitoring:4318`; without one, nothing is
    traced."""
    sampled: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Part of the traces that begin here, from 0 to 1; where the API server has begun one, it has decided."""


class Dashboard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages for people; docs/dashboard.md says who sees what."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8080
    """Port to listen on; 0 takes a free one."""
    certificate: str | None = None
    """File of the certificate that browsers are shown; without one, pages are served over plain HTTP."""
    key: str | None = None
    """File of that certificate's key."""
    plain: bool = False
    """Whether plain HTTP may be served on an address that others reach, since a proxy in front of it ends TLS."""
    session_keys: str | None = None
    """File of secrets that sessions are sealed with, one a line, the first for new ones; every replica needs the same.
    Without one, sessions end with the process."""
    session_hours: Annotated[float, msgspec.Meta(gt=0, le=168)] = 8.0
    """Hours after which a session ends."""
    audiences: tuple[str, ...] = ()
    """Audiences, one of which a token must be made for; without any, that of the API server."""
    user_header: str | None = None
    """Header in which an authenticating proxy says whom it let in, as `X-Forwarded-User`; without one, no proxy is
    believed."""
    groups_header: str | None = None
    """Header with that user's groups, separated by commas."""
    trusted: tuple[str, ...] = ()
    """Addresses of the proxies whose headers are believed, as `10.1.0.0/24`."""
    authority: str | None = None
    """File of the authority of client certificates; whoever shows one of its certificates is believed as a proxy."""
    client_names: tuple[str, ...] = ()
    """Common names of such certificates; without any, every certificate of that authority."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What concerns the whole process."""

    roles: tuple[str, ...] = ("webhook", "controller")
    """What this process does: `webhook`, `controller` and `dashboard`, or some of them."""
    kubeconfig: str | None = None
    """A kubeconfig; without one, `$KUBECONFIG`, else the service account of the pod, else `~/.kube/config`."""
    install_crds: bool = True
    """Whether `serve` applies Muster's CRDs at its start."""
    fence: tuple[str, ...] = ()
    """Drivers whose devices shall be handed out through Muster's queues alone, as `gpu.example.com`: kube-scheduler
    gives them to nobody else. Needs Kubernetes 1.37, or 1.36 with a feature gate (docs/placement.md)."""
    coverage: bool = False
    """Whether Muster may allocate devices without a fence where its webhook sees every pod of the cluster; it then
    keeps claims out of the namespaces that the webhook spares (docs/placement.md)."""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], LIVE] = "info"
    """The least that is logged."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`json`, `text`, or `auto`: text on a terminal, JSON elsewhere."""
    webhook: Webhook = Webhook()
    metrics: Metrics = Metrics()
    ledger: Ledger = Ledger()
    heads: Heads = Heads()
    lease: Lease = Lease()
    controller: Controller = Controller()
    usage: Usage = Usage()
    tracing: Tracing = Tracing()
    dashboard: Dashboard = Dashboard()


ROLES = frozenset({"webhook", "controller", "dashboard"})
PROFILES = ("auto", "1.34", "1.35", "1.36", "1.37")

_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DRIVER = 63

MOST_STEPS = 10_000
"""Prometheus refuses a query of more than 11,000 points."""


def problems(settings: Settings) -> Iterator[str]:
    """Yield the problems of settings whose types are right, each as `setting: problem, and what would be right`."""
    unknown = sorted(set(settings.roles) - ROLES)
    if unknown or not settings.roles:
        yield f"roles: {', '.join(unknown) or '(none)'}: choose from {', '.join(sorted(ROLES))}"
    if str(settings.controller.profile) not in PROFILES:
        yield f"controller.profile: {settings.controller.profile}: choose {', '.join(PROFILES)}"
    yield from _fence_problems(settings.fence)
    yield from _uuid_problems(settings.metrics.uuids)
    yield from _usage_problems(settings.usage)
    yield from _certificate_problems(settings.webhook)
    yield from _dashboard_problems(settings.dashboard)
    if settings.webhook.workers > 1 and "webhook" not in settings.roles:
        workers = settings.webhook.workers
        yield f"webhook.workers: {workers}: only the role webhook has workers; add it, or leave 1"
    endpoint = settings.tracing.endpoint
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        yield f"tracing.endpoint: {endpoint!r} is no URL; write that of a collector, as http://collector:4318"
    if settings.heads.url is not None and not settings.heads.url.startswith(("http://", "https://")):
        yield "heads.url: it is no URL; write that of an endpoint that takes a POST, as https://audit.example/heads"
    if not 0 < settings.lease.retry < settings.lease.renew_deadline < settings.lease.duration:
        yield "lease: retry < renew_deadline < duration must hold, all above 0"


def _certificate_problems(webhook: Webhook) -> Iterator[str]:
    if (webhook.certificate is None) != (webhook.key is None):
        yield "webhook: certificate and key are files that go together; name both, or neither"
    if webhook.certificate is None and (webhook.authority or webhook.inject):
        yield "webhook: authority and inject are for a certificate from a file; name that, too"
    if webhook.authority and webhook.inject:
        yield "webhook: either Muster writes the caBundle (authority) or cert-manager (inject)"


def _dashboard_problems(dashboard: Dashboard) -> Iterator[str]:
    if (dashboard.certificate is None) != (dashboard.key is None):
        yield "dashboard: certificate and key are files that go together; name both, or neither"
    if not (dashboard.certificate or dashboard.plain or _is_loopback(dashboard.host)):
        yield (
            f"dashboard.host: {dashboard.host} is reached by others, and tokens must not pass over plain HTTP: name a"
            " certificate and its key, or set dashboard.plain where a proxy in front ends TLS"
        )
    if dashboard.authority and not dashboard.certificate:
        yield "dashboard.authority: client certificates need TLS; name certificate and key, too"
    if dashboard.client_names and not dashboard.authority:
        yield "dashboard.client_names: are names in certificates of an authority; name that, too"
    if (dashboard.groups_header or dashboard.trusted or dashboard.authority) and not dashboard.user_header:
        yield "dashboard.user_header: name the header in which the proxy says whom it let in"
    if dashboard.user_header and not (dashboard.trusted or dashboard.authority):
        yield (
            "dashboard.user_header: anybody could send it; say with dashboard.trusted or dashboard.authority which"
            " proxies are believed"
        )
    yield from filter(None, map(_network_problem, dashboard.trusted))


def _network_problem(text: str) -> str:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        return f"dashboard.trusted: {error}; write 10.0.0.7/32 or 10.1.0.0/24"
    return "" if network.prefixlen else f"dashboard.trusted: {text} is everybody; name the proxies' addresses"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _uuid_problems(uuids: Sequence[str]) -> Iterator[str]:
    drivers = [one.partition("=")[0] for one in uuids]
    for one, driver in zip(uuids, drivers, strict=True):
        if len(driver) > _LONGEST_DRIVER or not _DRIVER.fullmatch(driver) or not one.partition("=")[2]:
            yield f"metrics.uuids: {one!r} is not driver=attribute; write it as gpu.example.com=uuid"
    for driver in sorted({driver for driver in drivers if drivers.count(driver) > 1}):
        yield f"metrics.uuids: {driver} stands there twice; leave one out"


def _usage_problems(usage: Usage) -> Iterator[str]:
    url = usage.prometheus.url
    if url is not None and (not url.startswith(("http://", "https://")) or "?" in url or "#" in url):
        yield "usage.prometheus.url: it is no URL; write that of a server, as http://prometheus.monitoring:9090"
    if url is not None and "@" in url and usage.prometheus.token_file is not None:
        yield "usage.prometheus.token_file: the URL has a user and a password already; leave one out"
    if usage.interval % usage.step or usage.interval // usage.step > MOST_STEPS:
        yield (
            f"usage.interval: {usage.interval} seconds are not 1 to {MOST_STEPS} times usage.step of {usage.step}"
            " seconds; change one of them"
        )
    for name in ("utilization", "memory", "power"):
        for one in getattr(usage.prometheus, name):
            driver, equals, _ = one.partition("=")
            if not equals or len(driver) > _LONGEST_DRIVER or not _DRIVER.fullmatch(driver):
                yield (
                    f"usage.prometheus.{name}: {one[:60]!r} is not driver=query; write it as"
                    " gpu.example.com=max by (uuid) (…)"
                )


def _fence_problems(fence: Sequence[str]) -> Iterator[str]:
    for driver in fence:
        if len(driver) > _LONGEST_DRIVER or not _DRIVER.fullmatch(driver):
            yield (
                f"fence: {driver!r} is no name of a DRA driver such as gpu.example.com;"
                " `kubectl get resourceslices` shows the drivers that there are"
            )
    for driver in sorted({driver for driver in fence if fence.count(driver) > 1}):
        yield f"fence: {driver} stands there twice; leave one out"
