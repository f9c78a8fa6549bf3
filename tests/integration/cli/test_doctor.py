"""`muster doctor`: what it says of an installation in which something is wrong.

That it finds nothing wrong where all is well is seen on a real control plane (tests/e2e/test_install.py).
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from admission.cli.cluster_options import Cluster
from admission.cli.doctor import checks, command, permissions
from admission.cli.doctor.checks import CheckInputs
from admission.cli.doctor.findings import Finding, Verdict
from admission.heads import head_document, key_history
from admission.heads.head_document import KeptHeads
from admission.kube.client.connection import Connection
from admission.kube.client.credentials import ClusterSelection
from admission.kube.webhook_config import match_conditions
from admission.ledger.db import migrations
from admission.settings import Settings
from admission.settings.schema import replaced
from admission.webhook.tls import certificate
from tests.integration.kube.conftest import QUICK
from tests.integration.kube.fake_api import FakeApi
from tests.unit.cli.conftest import Muster
from tests.unit.heads.builders import a_head

ACCOUNT = "system:serviceaccount:muster-system:muster"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
OWN_RIGHTS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OTHERS_RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1/leases"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PODS = "/api/v1/pods"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
QUEUES = "/apis/muster.dev/v1alpha1/queues"
METERS = "/apis/muster.dev/v1alpha1/meters"
POLICIES = "/apis/muster.dev/v1alpha1/claimpolicies"
SHAPES = "/apis/muster.dev/v1alpha1/nodeshapes"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def examined(api: FakeApi, kubeconfig: Callable[[str], Path]) -> AsyncIterator[Callable[..., Any]]:
    """Make a check of a cluster."""
    async with Connection(ClusterSelection(kubeconfig=kubeconfig(api.url)), retry_policy=QUICK) as connection:

        async def make(check: str, **changes: Any) -> list[Finding]:
            settings = replaced(Settings(), {name.replace("__", "."): value for name, value in changes.items()})
            return await checks.CHECKS[check](CheckInputs(cluster=Cluster(connection), settings=settings))

        yield make


def version(minor: str) -> Callable[[FakeApi], None]:
    return lambda api: api.objects[""].update(version={"major": "1", "minor": minor})


def without(*paths: str) -> Callable[[FakeApi], None]:
    return lambda api: api.absent.update(paths)


def gates(**values: int) -> Callable[[FakeApi], None]:
    lines = [f'kubernetes_feature_enabled{{name="{name}",stage="BETA"}} {value}' for name, value in values.items()]
    return lambda api: api.answer("GET", "/metrics", 200, "\n".join(["# HELP x", *lines, ""]))


def time_is(apart: timedelta) -> Callable[[FakeApi], None]:
    """Set the API server's clock: so far after ours as it is when the test runs."""

    def put(api: FakeApi) -> None:
        when = datetime.now(UTC) + apart
        api.answer("POST", REVIEWS, 201, {"metadata": {"creationTimestamp": f"{when:%Y-%m-%dT%H:%M:%SZ}"}})

    return put


def webhooks(authority: bytes | None) -> Callable[[FakeApi], None]:
    bundle = {} if authority is None else {"caBundle": base64.b64encode(authority).decode()}

    def put(api: FakeApi) -> None:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            api.put(f"{REGISTRATION}/{kind}", {"metadata": {"name": "muster"}, "webhooks": [{"clientConfig": bundle}]})

    return put


def lease(**spec: Any) -> Callable[[FakeApi], None]:
    named = {"metadata": {"name": "muster-controller", "namespace": "muster-system"}, "spec": spec}

    def put(api: FakeApi) -> None:
        api.put(LEASES, named)
        time_is(timedelta())(api)

    return put


def heads(age: timedelta, *, forged: bool = False, cluster: str = "default") -> Callable[[FakeApi], None]:
    """Publish a head that is so old when the test runs."""

    def put(api: FakeApi) -> None:
        now = datetime.now(UTC)
        ring = key_history.rotated(None, (), lifetime=timedelta(days=90), now=now - timedelta(days=1))
        signed = key_history.sign(a_head(7, at=now - age, cluster=cluster), ring)
        kept = KeptHeads(heads=(replace(signed, signature=b"no") if forged else signed,), keys=ring.keys)
        data = {key: value.decode() for key, value in head_document.to_entries(kept).items()}
        named = {"name": "muster-heads", "namespace": "muster-system"}
        api.put("/api/v1/configmaps", {"metadata": named, "data": data})
        time_is(timedelta())(api)

    return put


def devices(*drivers: str, fenced: str = "") -> Callable[[FakeApi], None]:
    def put(api: FakeApi) -> None:
        for driver in drivers:
            api.put(SLICES, {"metadata": {"name": driver}, "spec": {"driver": driver}})
        if fenced:
            taint = {"key": "muster.dev/fence", "value": "Muster", "effect": "NoSchedule"}
            spec = {"deviceSelector": {"driver": fenced}, "taint": taint}
            meta = {"name": f"muster-fence-{fenced}", "creationTimestamp": "2026-11-21T12:00:00Z"}
            api.put(RULES, {"metadata": meta, "spec": spec})

    return put


def condition(collection: str, kind: str) -> Callable[[FakeApi], None]:
    said = [{"type": kind, "status": "False", "reason": "X", "message": "it is upside down"}]

    def put(api: FakeApi) -> None:
        api.put(collection, {"metadata": {"name": "one"}, "status": {"conditions": said}})

    return put


def holding(
    *, queue: str = "", device_class: str = "gpu.example.com", admin: bool = False
) -> Callable[[FakeApi], None]:
    """Return a pod whose claim has two devices, and a Meter of gpu.example.com."""
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": 2, "adminAccess": admin}}
    results = [
        {"request": "gpu", "driver": "d", "pool": "p", "device": f"gpu-{at}", "adminAccess": admin} for at in range(2)
    ]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": "loose", "uid": "u"}]}

    def put(api: FakeApi) -> None:
        named = {"namespace": "ml", "labels": {"muster.dev/queue": queue} if queue else {}}
        source = {"deviceClasses": ["gpu.example.com"], "count": {}}
        api.put(METERS, {"metadata": {"name": "gpus"}, "spec": {"sources": [source]}})
        api.put(PODS, {"metadata": {**named, "name": "loose", "uid": "u"}, "spec": {"nodeName": "a"}})
        claim = {"metadata": {"name": "c", "namespace": "ml"}, "spec": {"devices": {"requests": [request]}}}
        api.put(CLAIMS, {**claim, "status": status})

    return put


ENDED = certificate.authority(now=LONG_AGO, validity=timedelta(days=1)).certificate
LASTING = certificate.authority(now=datetime.now(UTC), validity=timedelta(days=90)).certificate
NOW = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000000Z}"
DAY = 86_400
HOUR = timedelta(hours=1)
NOTHING: Callable[[FakeApi], None] = lambda _: None  # noqa: E731 - one of many in a table
GPU = "gpu.example.com"

SEEN: dict[str, tuple[str, Callable[[FakeApi], None], dict[str, Any], Verdict, str]] = {
    "a Kubernetes without claims": ("version", version("33"), {}, Verdict.FAILED, "1.33 .* has no resource.k8s.io/v1"),
    "the oldest Kubernetes with claims": ("version", version("34"), {}, Verdict.OK, "1.34 .*; off .* device taints,"),
    "a Kubernetes that is newer than all": (
        *("version", version("38"), {}, Verdict.WARNING),
        "Kubernetes 1.38 is newer than 1.37",
    ),
    "one of which the operator knows what it does": (
        *("version", version("38"), {"controller__profile": "1.37"}, Verdict.OK),
        "Kubernetes 1.38",
    ),
    "CRDs that are missing": ("apis", without(QUEUES, METERS), {}, Verdict.FAILED, "queues.muster.dev, meters.muster"),
    "claims that are not served": ("apis", without(SLICES), {}, Verdict.FAILED, "does not serve resourceslices"),
    "DRA that is switched off": (
        *("feature gates", gates(DynamicResourceAllocation=0), {}, Verdict.FAILED),
        "off: DynamicResourceAllocation",
    ),
    "taints that are switched off, though fences are asked for": (
        *("feature gates", gates(DynamicResourceAllocation=1, DRADeviceTaintRules=0), {"fence": (GPU,)}),
        *(Verdict.FAILED, "off: DRADeviceTaintRules"),
    ),
    "taints that are switched off, and nobody asks for": (
        *("feature gates", gates(DynamicResourceAllocation=1, DRADeviceTaintRules=0), {}, Verdict.OK),
        "on: DynamicResourceAllocation",
    ),
    "metrics without gates": ("feature gates", gates(), {}, Verdict.SKIPPED, "do not tell"),
    "a clock that is ahead": (
        *("clock", time_is(timedelta(hours=-1)), {}, Verdict.FAILED),
        r"3\d\d\d s ahead of the API server's",
    ),
    "a clock that is behind": (
        *("clock", time_is(timedelta(hours=1)), {}, Verdict.FAILED),
        r"3\d\d\d s behind the API server's",
    ),
    "webhooks that are not registered": ("webhook", NOTHING, {}, Verdict.FAILED, "there is no mutatingwebhook"),
    "an authority that has ended": ("webhook", webhooks(ENDED), {}, Verdict.FAILED, "ended at 2020-01-02"),
    "webhooks that trust nobody": ("webhook", webhooks(None), {}, Verdict.FAILED, "trusts nobody"),
    "a webhook that is not reached": (
        *("webhook", webhooks(LASTING), {}, Verdict.FAILED),
        "the API server does not reach it",
    ),
    "no leader ever": ("leader", NOTHING, {}, Verdict.FAILED, "there is no Lease muster-system/muster-controller"),
    "a lease that nobody holds": ("leader", lease(holderIdentity=""), {}, Verdict.FAILED, "nobody holds the lease"),
    "a leader that is silent": (
        *("leader", lease(holderIdentity="a", renewTime="2026-01-01T00:00:00.000000Z", leaseDurationSeconds=15), {}),
        *(Verdict.FAILED, "a was last heard of"),
    ),
    "a leader": ("leader", lease(holderIdentity="a", renewTime=NOW, leaseDurationSeconds=DAY), {}, Verdict.OK, "a le"),
    "no head": ("heads", NOTHING, {}, Verdict.WARNING, "ConfigMap muster-system/muster-heads has no head of cluster"),
    "heads of another cluster": ("heads", heads(HOUR, cluster="x"), {}, Verdict.WARNING, "has no head of cluster def"),
    "a head of an hour ago": ("heads", heads(HOUR), {}, Verdict.FAILED, r"of transaction 7, is 3[56]\d\d s old"),
    "a head that nobody signed": ("heads", heads(HOUR / 60, forged=True), {}, Verdict.FAILED, "is not signed by"),
    "a head of now": ("heads", heads(HOUR / 60), {}, Verdict.OK, "the newest, of transaction 7"),
    "no heads, as the settings say": ("heads", NOTHING, {"heads__enabled": False}, Verdict.SKIPPED, "heads.enabled"),
    "no devices": ("devices", devices(), {}, Verdict.WARNING, "no DRA driver has published a device"),
    "a fence that is missing": ("devices", devices(GPU), {"fence": (GPU,)}, Verdict.FAILED, "and none stands"),
    "a fence that nobody asks for": ("devices", devices(GPU, fenced=GPU), {}, Verdict.WARNING, "do not ask for"),
    "a fence as asked for": ("devices", devices(GPU, fenced=GPU), {"fence": (GPU,)}, Verdict.OK, "Muster may allocate"),
    "a fence around nothing": (
        *("devices", devices("nic.example.com"), {"fence": (GPU,)}, Verdict.WARNING),
        "fence gpu.example.com, which has published no device",
    ),
    "coverage": ("devices", devices(GPU), {"coverage": True}, Verdict.OK, "(coverage)"),
    "no queues": ("queues", NOTHING, {}, Verdict.WARNING, "there is no queue"),
    "a queue that is not active": ("queues", condition(QUEUES, "Active"), {}, Verdict.WARNING, "one: it is upside"),
    "devices of a pod in no queue": (
        *("outside queues", holding(), {}, Verdict.WARNING),
        "2 devices of class gpu.example.com are held by pods in no queue, on nobody's quota: ml/loose",
    ),
    "devices of a pod in a queue": ("outside queues", holding(queue="q"), {}, Verdict.OK, "no pod outside queues"),
    "devices that no Meter counts": ("outside queues", holding(device_class="nic"), {}, Verdict.OK, "no pod outside"),
    "admin access outside queues": ("outside queues", holding(admin=True), {}, Verdict.OK, "no pod outside queues"),
    "no Meter": ("outside queues", NOTHING, {}, Verdict.OK, "no Meter counts a device class"),
    "no policies": ("policies", NOTHING, {}, Verdict.OK, "all of 0 ClaimPolicies is applied"),
    "a flawed policy": ("policies", condition(POLICIES, "Ready"), {}, Verdict.FAILED, "ClaimPolicy one: it is upside"),
    "no shapes": ("shapes", NOTHING, {}, Verdict.OK, "nothing is wrong with the 0 NodeShapes"),
    "an unreadable shape": ("shapes", condition(SHAPES, "Ready"), {}, Verdict.WARNING, "NodeShape one: it is upside"),
    "a shape that nodes differ from": ("shapes", condition(SHAPES, "Matches"), {}, Verdict.WARNING, "it is upside"),
    "a shape of which no node is up": ("shapes", condition(SHAPES, "Up"), {}, Verdict.OK, "nothing is wrong"),
    "a meter that is not ready": ("queues", condition(METERS, "Ready"), {}, Verdict.WARNING, "Meter one: it is upside"),
}  # fmt: skip


@pytest.mark.parametrize(("check", "prepare", "changes", "verdict", "said"), SEEN.values(), ids=SEEN)
async def test_a_doctor_check_gives_the_expected_verdict(  # noqa: PLR0917 - a row of the table
    api: FakeApi,
    examined: Callable[..., Any],
    check: str,
    prepare: Callable[[FakeApi], None],
    changes: dict[str, Any],
    verdict: Verdict,
    said: str,
) -> None:
    prepare(api)

    found = await examined(check, **changes)

    matching = [one for one in found if re.search(said.replace("(coverage)", r"\(coverage\)"), one.message)]
    assert [one.verdict for one in matching[:1]] == [verdict], found
    assert verdict is Verdict.OK or verdict is Verdict.SKIPPED or matching[0].fix


BOTH = {role: set(permissions.rights(Settings(), role)) for role in ("controller", "webhook")}


def allow(api: FakeApi, path: str, *, user: str, wanted: int, but: int = 0) -> None:
    """Answer as many questions about rights, all but some with yes."""
    api.answer("POST", REVIEWS, 201, {"status": {"userInfo": {"username": user}}})
    for number in range(wanted):
        api.answer("POST", path, 201, {"status": {"allowed": number >= but}})


async def test_muster_asks_about_its_own_rights(api: FakeApi, examined: Callable[..., Any]) -> None:
    count = len(BOTH["controller"] | BOTH["webhook"])
    allow(api, OWN_RIGHTS, user=ACCOUNT, wanted=count)

    [found] = await examined("rights")

    assert found.verdict is Verdict.OK
    assert f"{ACCOUNT} may do all {count} things" in found.message


async def test_an_administrator_asks_about_musters_account(api: FakeApi, examined: Callable[..., Any]) -> None:
    allow(api, OTHERS_RIGHTS, user="admin", wanted=len(BOTH["controller"] | BOTH["webhook"]), but=7)

    [found] = await examined("rights")

    assert found.verdict is Verdict.FAILED
    assert f"{ACCOUNT} may not" in found.message
    assert "and 2 more" in found.message
    asked = api.last("POST", OTHERS_RIGHTS).body["spec"]
    assert asked["user"] == ACCOUNT
    assert "system:serviceaccounts:muster-system" in asked["groups"]


async def test_where_muster_runs_as_somebody_else_that_user_is_asked_about(
    api: FakeApi, examined: Callable[..., Any]
) -> None:
    """As `muster serve` does on a machine outside the cluster, under the user of a kubeconfig."""
    allow(api, OTHERS_RIGHTS, user="admin", wanted=1000)
    condition = {"name": "not-by-muster", "expression": match_conditions.not_by('ops "east"')}
    collection = f"{REGISTRATION}/validatingwebhookconfigurations"
    api.put(collection, {"metadata": {"name": "muster"}, "webhooks": [{"matchConditions": [condition]}]})

    [found] = await examined("rights")

    assert found.message.startswith('ops "east" may do all')
    assert api.last("POST", OTHERS_RIGHTS).body["spec"]["user"] == 'ops "east"'


WEBHOOK = "system:serviceaccount:muster-system:muster-webhook"


async def test_where_the_roles_have_accounts_of_their_own_each_is_asked_about(
    api: FakeApi, examined: Callable[..., Any]
) -> None:
    allow(api, OTHERS_RIGHTS, user="admin", wanted=1000)

    found = await examined("rights", controller__user=ACCOUNT)

    assert [one.message.partition(",")[0].partition(" may")[0] for one in found] == [ACCOUNT, WEBHOOK, WEBHOOK]
    assert [one.verdict for one in found] == [Verdict.OK, Verdict.OK, Verdict.WARNING]


async def test_a_webhook_that_may_write_is_a_finding_and_one_that_may_not_is_none(
    api: FakeApi, examined: Callable[..., Any]
) -> None:
    beyond = {right for right in BOTH["controller"] if right.writes}
    allow(api, OWN_RIGHTS, user=WEBHOOK, wanted=len(BOTH["webhook"]) + len(beyond))

    passed, found = await examined("rights", roles=("webhook",), controller__user=ACCOUNT)

    assert passed.verdict is Verdict.OK
    assert found.verdict is Verdict.WARNING
    assert f"and {len(beyond) - permissions.MOST_NAMED} more, which only a controller does" in found.message

    allow(api, OWN_RIGHTS, user=WEBHOOK, wanted=len(BOTH["webhook"]))
    for _ in beyond:
        api.answer("POST", OWN_RIGHTS, 201, {"status": {"allowed": False}})

    assert [one.verdict for one in await examined("rights", roles=("webhook",))] == [Verdict.OK]


def test_only_rights_that_the_settings_need_are_asked_about() -> None:
    plain, fencing, without, files = (
        {str(right) for right in permissions.rights(replaced(Settings(), changes), "controller")}
        for changes in (
            {},
            {"fence": (GPU,)},
            {"install_crds": False, "webhook.register": False},
            {"webhook.certificate": "tls.crt", "webhook.key": "tls.key"},
        )
    )

    assert "create devicetaintrules.resource.k8s.io" in fencing - plain
    assert "delete devicetaintrules.resource.k8s.io" in plain
    assert "create customresourcedefinitions.apiextensions.k8s.io" in plain - without
    assert "patch mutatingwebhookconfigurations.admissionregistration.k8s.io muster" in plain - without
    assert "update secrets muster-webhook in muster-system" in (plain & fencing & without) - files


def test_the_rights_of_a_webhook_write_nothing_and_are_the_controllers_too() -> None:
    assert not any(right.writes for right in BOTH["webhook"])
    assert BOTH["webhook"] <= BOTH["controller"], "one process that does everything has the controller's account"


async def ledger(url: str, **changes: Any) -> Finding:
    [found] = await command._ledger(replaced(Settings(), {"ledger.url": url, **changes}))
    return found


async def test_a_ledger_that_is_up_to_date_is_fine(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    await migrations.migrate(url)

    assert (await ledger(url)).verdict is Verdict.OK


async def test_a_ledger_of_an_earlier_muster_is_a_finding_with_its_remedy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    await migrations.migrate(url, revision=(await migrations.known_revisions())[0])

    found = await ledger(url)

    assert found.verdict is Verdict.FAILED
    assert "muster ledger migrate" in found.fix


async def test_a_ledger_elsewhere_is_not_looked_for_here(tmp_path: Path) -> None:
    assert (await ledger(f"sqlite:///{tmp_path}/none.db")).verdict is Verdict.SKIPPED
    assert (await ledger("sqlite:///x", roles=("webhook",))).verdict is Verdict.SKIPPED


async def test_a_database_that_does_not_answer_is_a_finding_without_its_password() -> None:
    found = await ledger("postgresql://muster:hush@127.0.0.1:1/muster")

    assert found.verdict is Verdict.FAILED
    assert "hush" not in found.message


def test_a_cluster_that_does_not_answer_is_a_single_finding(
    muster: Muster, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "RETRY_POLICY", QUICK)
    scheduler = tmp_path / "scheduler.yaml"
    scheduler.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    given = ("--kubeconfig", str(kubeconfig("http://127.0.0.1:1")), "--scheduler-config", str(scheduler))

    done = muster("doctor", *given, "--format", "json")

    found = {one["check"]: one["verdict"] for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 3
    assert found == {"settings": "ok", "cluster": "failed", "ledger": "skipped", "kube-scheduler": "ok"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("apiVersion: v1\nkind: Pod\n", "has no KubeSchedulerConfiguration"),
        ("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n", "v1beta3 is not read"),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: {}\n",
            "scheduler.yaml:3: KubeSchedulerConfiguration",
        ),
    ],
)
def test_a_scheduler_configuration_that_is_none_is_an_error_with_its_place(
    muster: Muster, tmp_path: Path, text: str, error: str
) -> None:
    (tmp_path / "scheduler.yaml").write_text(text)

    done = muster("doctor", "--scheduler-config", str(tmp_path / "scheduler.yaml"))

    assert done.returncode == 2
    assert error in done.stderr
