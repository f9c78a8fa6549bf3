"""The checks of `muster doctor` in a cluster, in order. Each returns its findings, and raises if it cannot finish."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from admission.api.kubernetes import claims, pods
from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster import meters, status_views
from admission.api.values.decoding import Json
from admission.cli import referents
from admission.cli.cluster_options import Cluster
from admission.cli.doctor import findings, permissions
from admission.cli.doctor.findings import Finding
from admission.dra import compatibility
from admission.dra.diagnosis import absent_features
from admission.dra.metering import device_meters
from admission.errors import ForbiddenError, GoneError
from admission.heads import head_document, key_history
from admission.heads.head_document import KeptHeads
from admission.kube import fence_controller
from admission.kube.cache import watched_resources
from admission.kube.client import paths
from admission.kube.client.connection import Connection
from admission.kube.config_map_store import ConfigMapStore
from admission.kube.webhook_config import dry_run_probe
from admission.settings import Settings
from admission.status import outside_queues
from admission.status.outside_queues import HeldOutside

GATES = ("DynamicResourceAllocation",)
"""Without these the API server does not serve claims."""

FENCE_GATES = ("DRADeviceTaints", "DRADeviceTaintRules")
"""Without these the taint rules of fences have no effect."""

MAX_SKEW = timedelta(seconds=3)
"""The API server's time is in whole seconds; a larger difference is no rounding."""

OLDEST_HEAD = timedelta(minutes=45)
"""A leader signs the end of the books every quarter of an hour, whatever happens."""

MOST_NAMED = 5
"""The most pods that are named."""

SHAPE_CONDITIONS = ("Ready", "Matches", "NodePool")
"""The conditions of a NodeShape that are false where something is wrong with it."""

OVERDUE_FRACTION = 6
"""An authority with less than this fraction of its life left is overdue: Muster replaces it at a third."""

_PREDICTED = " or ".join(compatibility.BY_VERSION)

_GATE = re.compile(rb'^kubernetes_feature_enabled\{name="(?P<name>\w+)",[^}]*\} (?P<value>[01])')
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputs:
    """The inputs of the checks. account: Muster's user; "" for the chart's."""

    cluster: Cluster
    settings: Settings
    account: str = ""

    @property
    def connection(self) -> Connection:
        return self.cluster.connection


async def version(inputs: CheckInputs) -> list[Finding]:
    """Check the version of Kubernetes."""
    seen = await inputs.connection.versions()
    message = f"Kubernetes {seen} at {inputs.connection.server}"
    profile = compatibility.of_version(str(seen))
    if profile is None:
        return [findings.failed("version", f"{message} has no resource.k8s.io/v1", f"upgrade it to {_PREDICTED}")]
    if inputs.settings.controller.profile != "auto" or not profile.mismatch:
        off = ", ".join(absent_features.NAMES[name] for name in absent_features.absent(profile))
        without = f"; off in this release as it comes: {off}" if off else ""
        return [findings.passed("version", message + without)]
    fix = "upgrade Muster; until then gangs are pinned to nodes, and fences and coverage have no effect"
    return [findings.warning("version", f"{message}: {profile.mismatch}", fix)]


async def apis(inputs: CheckInputs) -> list[Finding]:
    """Check that the API server serves the kinds of DRA and Muster's own."""
    found = []
    for kind in (watched_resources.CLAIMS, watched_resources.SLICES, watched_resources.CLASSES):
        if not await _is_served(inputs.connection, kind.path):
            fix = "serve resource.k8s.io/v1 (API server: --runtime-config=resource.k8s.io/v1=true)"
            found.append(findings.failed("apis", f"the API server does not serve {kind}", fix))
    own = (watched_resources.QUEUES, watched_resources.METERS, watched_resources.POLICIES, watched_resources.GANGS)
    absent = [str(kind) for kind in own if not await _is_served(inputs.connection, kind.path)]
    if absent:
        fix = "start Muster with install_crds, or `kubectl apply --server-side --force-conflicts -f config/crds`"
        found.append(findings.failed("apis", f"these CRDs are not installed: {', '.join(absent)}", fix))
    return found or [findings.passed("apis", "resource.k8s.io/v1 and muster.dev/v1alpha1 are served")]


async def gates(inputs: CheckInputs) -> list[Finding]:
    """Check the API server's feature gates, from its metrics; kube-scheduler's are assumed to be the same."""
    gates_by_name = await _gates(inputs.connection)
    required = (*GATES, *(FENCE_GATES if inputs.settings.fence else ()))
    disabled = [name for name in required if gates_by_name.get(name) is False]
    if disabled:
        fix = f"switch it on in API server, controller manager and kube-scheduler: --feature-gates={disabled[0]}=true"
        return [findings.failed("feature gates", f"off: {', '.join(disabled)}", fix)]
    if not gates_by_name:
        return [findings.skipped("feature gates", "the API server's metrics do not tell them")]
    enabled = sorted(name for name, is_on in gates_by_name.items() if is_on and name.startswith("DRA"))
    return [findings.passed("feature gates", f"on: {', '.join(dict.fromkeys((*required, *enabled)))}")]


async def rights(inputs: CheckInputs) -> list[Finding]:
    """Check the rights of Muster's account."""
    return await permissions.check_rights(inputs.connection, inputs.settings, inputs.account)


async def webhooks(inputs: CheckInputs) -> list[Finding]:
    """Check the webhooks' configurations, their trusted authorities, and that the API server reaches them."""
    found: list[Finding] = []
    for plural in _CONFIGURATIONS:
        try:
            body = await inputs.connection.get(paths.join(f"{_REGISTRATION}/{plural}", "muster"))
        except GoneError:
            fix = "start a Muster with the role controller; its log says why it does not register the webhook"
            return [findings.failed("webhook", f"there is no {plural} muster: no pod is held", fix)]
        found += _trust(plural, body)
    try:
        trouble = await dry_run_probe.probe(inputs.connection, inputs.settings.lease.namespace)
    except ForbiddenError as error:
        untried = f"whether the API server reaches it is not tried: {error}"
        return [*found, findings.skipped("webhook", untried, findings.ASK_ADMINISTRATOR)]
    if trouble:
        fix = "mend what is named; see docs/webhook.md: Service, NetworkPolicy (networkPolicy.apiServer), certificates"
        return [*found, findings.failed("webhook", f"the API server does not reach it: {trouble}", fix)]
    return [
        *found,
        findings.passed("webhook", "a dry run came back through it: address, certificate and answer are right"),
    ]


def _trust(plural: str, body: Json) -> Iterator[Finding]:
    """Check the authorities of a configuration: one current authority suffices, since a new one is beside the old."""
    bundles = {hook["clientConfig"].get("caBundle", "") for hook in body.get("webhooks") or ()}
    now = datetime.now(UTC)
    for bundle in sorted(filter(None, bundles)):
        last = max(x509.load_pem_x509_certificates(base64.b64decode(bundle)), key=lambda one: one.not_valid_after_utc)
        ends = last.not_valid_after_utc
        if ends - now < (ends - last.not_valid_before_utc) / OVERDUE_FRACTION:
            fix = "see why Muster, or who makes them, does not renew them: its log, the Secret muster-webhook"
            yield findings.failed(
                "certificates",
                f"the authority of {plural} {'ended' if ends < now else 'ends'} at {ends:%Y-%m-%d %H:%MZ}",
                fix,
            )
    if not any(bundles):
        yield findings.failed(
            "certificates",
            f"{plural} muster trusts nobody: it has no caBundle",
            "with webhook.certificate, set webhook.authority or webhook.inject; else see the webhook's log",
        )


async def leader(inputs: CheckInputs) -> list[Finding]:
    """Check that a controller leads."""
    lease = inputs.settings.lease
    path = paths.join(paths.within("/apis/coordination.k8s.io/v1", lease.namespace, "leases"), lease.name)
    fix = f"see why no controller leads: `kubectl -n {lease.namespace} logs deployment/muster-controller`"
    try:
        spec = (await inputs.connection.get(path)).get("spec") or {}
    except GoneError:
        return [findings.failed("leader", f"there is no Lease {lease.namespace}/{lease.name}: none ever led", fix)]
    holder, renewed = spec.get("holderIdentity"), _time(spec.get("renewTime"))
    if not holder or renewed is None:
        return [findings.failed("leader", "nobody holds the lease", fix)]
    age = (await _now(inputs.connection) or datetime.now(UTC)) - renewed
    if age > timedelta(seconds=float(spec.get("leaseDurationSeconds") or lease.duration)) + MAX_SKEW:
        return [findings.failed("leader", f"{holder} was last heard of {age.total_seconds():.0f} s ago", fix)]
    return [findings.passed("leader", f"{holder} leads")]


async def heads(inputs: CheckInputs) -> list[Finding]:
    """Check that the end of the books is signed and published."""
    settings, namespace, cluster = (
        inputs.settings.heads,
        inputs.settings.lease.namespace,
        inputs.settings.ledger.cluster,
    )
    if not settings.enabled:
        return [findings.skipped("heads", "the settings have none signed (heads.enabled)")]
    fix = f"see why no leader signs: `kubectl -n {namespace} logs deployment/muster-controller`"
    stored = await ConfigMapStore(inputs.connection, namespace=namespace, name=settings.config_map).read()
    kept = KeptHeads() if stored is None else head_document.from_entries(stored[0])
    newest = max((one for one in kept.heads if one.head.cluster == cluster), key=lambda one: one.head.at, default=None)
    where = f"ConfigMap {namespace}/{settings.config_map}"
    if newest is None:
        return [findings.warning("heads", f"{where} has no head of cluster {cluster}: the books are not proven", fix)]
    age = (await _now(inputs.connection) or datetime.now(UTC)) - newest.head.at
    seen = f"the newest, of transaction {newest.head.sequence}, is {max(0, age.total_seconds()):.0f} s old"
    problem = key_history.problem(newest, kept.keys)
    if problem is not None:
        return [findings.failed("heads", f"{seen}, and {problem}", f"find out who has changed {where}")]
    if age > OLDEST_HEAD:
        return [findings.failed("heads", f"{seen}, in {where}", fix)]
    return [findings.passed("heads", f"{seen}; `muster ledger verify --heads cluster` compares the books with them")]


async def clock(inputs: CheckInputs) -> list[Finding]:
    """Check the difference between this machine's clock and the API server's."""
    before = datetime.now(UTC)
    server_time = await _now(inputs.connection)
    if server_time is None:
        return [findings.skipped("clock", "the API server does not tell its time")]
    after = datetime.now(UTC)
    # Their time is truncated, and the answer took a while: any clock in this interval is right.
    ahead, behind = before - (server_time + timedelta(seconds=1)), server_time - after
    skew = max(ahead, behind, timedelta(0))
    message = (
        f"this machine's is {skew.total_seconds():.0f} s {'ahead of' if ahead > behind else 'behind'} the API server's"
    )
    if skew > MAX_SKEW:
        return [
            findings.failed("clock", message, "set both by NTP: budgets and the ledger's times are those of the leader")
        ]
    return [findings.passed("clock", "this machine's and the API server's agree to seconds")]


async def drivers(inputs: CheckInputs) -> list[Finding]:
    """Check what keeps kube-scheduler off the devices of each driver, if the settings ask for that."""
    slices = await inputs.cluster.list_objects(watched_resources.SLICES)
    published = sorted({str(one["spec"]["driver"]) for one in slices})
    if not published:
        fix = "install a DRA driver, or see why it publishes no ResourceSlices"
        return [findings.warning("devices", "no DRA driver has published a device", fix)]
    fences = await fence_controller.cluster_fences(inputs.connection)
    fenced = {driver for driver, _ in fences.fences}
    found = [_driver(driver, fenced, inputs.settings) for driver in published]
    for driver in inputs.settings.fence:
        if driver not in published:
            fix = f"name one of {', '.join(published)}, or start the driver"
            found.append(
                findings.warning("devices", f"the settings fence {driver}, which has published no device", fix)
            )
    return found


def _driver(driver: str, fenced: set[str], settings: Settings) -> Finding:
    if driver in settings.fence and driver not in fenced:
        return findings.failed(
            "devices", f"{driver}: the settings ask for a fence, and none stands", "see the leader's log"
        )
    if driver in fenced and driver not in settings.fence:
        fix = f"name it in the setting fence, or `muster fence lift {driver}`: while it stands, nobody else gets them"
        return findings.warning("devices", f"{driver}: a fence stands that the settings do not ask for", fix)
    if driver in fenced:
        return findings.passed("devices", f"{driver}: fenced; Muster may allocate")
    if settings.coverage:
        return findings.passed("devices", f"{driver}: Muster may allocate where its webhook sees all pods (coverage)")
    return findings.passed("devices", f"{driver}: shared with kube-scheduler; Muster pins pods to nodes")


async def queues(inputs: CheckInputs) -> list[Finding]:
    """Check the conditions of queues and meters."""
    stored = await inputs.cluster.list_objects(watched_resources.QUEUES)
    reports = await referents.in_queues(map(status_views.queue, stored), inputs.cluster)
    found = [
        findings.warning("queues", f"{report.name}: {condition.message}", "mend its spec, as it says")
        for report in reports
        for condition in report.conditions
        if condition.type == "Active" and condition.status is ConditionStatus.FALSE
    ]
    for obj in await inputs.cluster.list_objects(watched_resources.METERS):
        found += _meter(obj)
    if not reports:
        fix = "`muster init` proposes a Meter, Queues and a first Job for this cluster"
        return [*found, findings.warning("queues", "there is no queue: Muster holds nothing", fix)]
    return found or [findings.passed("queues", f"all {len(reports)} are active, and every Meter is ready")]


def _meter(obj: Json) -> Iterator[Finding]:
    conditions: list[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    for condition in conditions:
        if condition.get("type") == "Ready" and condition.get("status") == "False":
            name = obj["metadata"]["name"]
            yield findings.warning("queues", f"Meter {name}: {condition.get('message')}", "mend its spec, as it says")


async def outside(inputs: CheckInputs) -> list[Finding]:
    """Check whether pods outside every queue hold devices that a Meter counts."""
    cluster = inputs.cluster
    counted = device_meters.classes_known(map(meters.decode, await cluster.list_objects(watched_resources.METERS)))
    if not counted:
        return [findings.passed("outside queues", "no Meter counts a device class")]
    used = map(claims.decode, await cluster.list_objects(watched_resources.CLAIMS))
    running = {pod.meta.uid: pod for pod in map(pods.decode, await cluster.list_objects(watched_resources.PODS))}
    found = [*outside_queues.held(used, running, counted)]
    fix = "name a queue in their label muster.dev/queue, or label the namespace muster.dev/require-queue=true"
    by_class: dict[str, list[HeldOutside]] = {}
    for one in found:
        by_class.setdefault(one.device_class, []).append(one)
    return [
        findings.warning("outside queues", _outside(name, some), fix) for name, some in sorted(by_class.items())
    ] or [findings.passed("outside queues", "no pod outside queues holds a device that a Meter counts")]


def _outside(device_class: str, found: Sequence[HeldOutside]) -> str:
    holders = list(dict.fromkeys(one.pod for one in found))
    more = f" and {len(holders) - MOST_NAMED} more" if len(holders) > MOST_NAMED else ""
    return (
        f"{sum(one.devices for one in found)} devices of class {device_class} are held by pods in no queue, on nobody's"
        f" quota: {', '.join(holders[:MOST_NAMED])}{more}"
    )


async def policies(inputs: CheckInputs) -> list[Finding]:
    """Check the conditions of claim policies: an invalid rule refuses everything, or nothing."""
    found = await inputs.cluster.list_objects(watched_resources.POLICIES)
    invalid = [finding for obj in found for finding in _policy(obj)]
    return invalid or [findings.passed("policies", f"all of {len(found)} ClaimPolicies is applied")]


def _policy(obj: Json) -> Iterator[Finding]:
    conditions: list[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    for condition in conditions:
        if condition.get("type") == "Ready" and condition.get("status") == "False":
            name = obj["metadata"]["name"]
            fix = "mend what is named, or take it out: with failurePolicy: Fail, an invalid rule allows nothing"
            yield findings.failed("policies", f"ClaimPolicy {name}: {condition.get('message')}", fix)


async def shapes(inputs: CheckInputs) -> list[Finding]:
    """Check the conditions of NodeShapes: whether they can be read, and their nodes are what they say."""
    if not await _is_served(inputs.connection, watched_resources.SHAPES.path):
        return [findings.skipped("shapes", "NodeShapes are not served; without them no nodes to come are planned with")]
    found = await inputs.cluster.list_objects(watched_resources.SHAPES)
    wrong = [finding for obj in found for finding in _shape(obj)]
    return wrong or [findings.passed("shapes", f"nothing is wrong with the {len(found)} NodeShapes")]


def _shape(obj: Json) -> Iterator[Finding]:
    conditions: list[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    for condition in conditions:
        if condition.get("type") in SHAPE_CONDITIONS and condition.get("status") == "False":
            name = obj["metadata"]["name"]
            yield findings.warning("shapes", f"NodeShape {name}: {condition.get('message')}", "mend it, as it says")


async def _is_served(connection: Connection, path: str) -> bool:
    try:
        await connection.get(path, {"limit": 1})
    except GoneError:
        return False
    return True


async def _gates(connection: Connection) -> dict[str, bool]:
    found: dict[str, bool] = {}
    async for line in connection.lines("/metrics", {}, quiet=5.0, total=15.0):
        gate = _GATE.match(line)
        if gate:
            found[gate["name"].decode()] = gate["value"] == b"1"
    return found


async def _now(connection: Connection) -> datetime | None:
    """Return the API server's time, from the object that it creates. Every user may create a SelfSubjectReview."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await connection.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return _time((answer.get("metadata") or {}).get("creationTimestamp"))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


CHECKS = {
    "version": version,
    "apis": apis,
    "feature gates": gates,
    "rights": rights,
    "clock": clock,
    "webhook": webhooks,
    "leader": leader,
    "heads": heads,
    "devices": drivers,
    "queues": queues,
    "outside queues": outside,
    "policies": policies,
    "shapes": shapes,
}
"""The name of a check → the check, in order."""

READING_OWN_KINDS = ("queues", "outside queues", "policies", "shapes")
"""Checks that read Muster's own objects."""
