"""The dashboard on the real API server, with real books and under the account that the chart gives it: who sees what.

One world for all: a gang that runs, one on a part of a GPU, and one that is held; the last test lets time pass.
"""

import http.client
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect, sync_playwright

from tests import browser
from tests.controlplane import ApiError, ControlPlane, building, fleet, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import PATIENCE, eventually
from tests.e2e import fixtures, musters, sites
from tests.e2e.musters import ROOT, Muster
from tests.e2e.sites import Answer, Signer, Signers, Site
from tests.e2e.teams import GROUP, Team, found_team, job

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
PARTS = "parts.example.com"
NAMESPACE = "shown"
expect.set_options(timeout=PATIENCE * 1000)

DRY = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is shown, and what shows it."""

    control_plane: ControlPlane
    muster: Muster
    team: Team
    site: Site
    account: Client
    signers: Signers
    running: datetime
    """When the first gang ran."""

    def token(self, user: str) -> str:
        return self.control_plane.client(user).token

    def see(self, path: str, *shown: str, user: str = "admin") -> Answer:
        """Wait until a page shows all of this to somebody: statuses and watches take a moment."""

        def shows() -> Answer | None:
            answer = self.site.get(path, token=self.token(user))
            missing = [text for text in shown if text not in answer.text]
            seen[:] = [f"{answer.status}, without {missing}: {' '.join(MAIN.findall(answer.text))[:2_000]}"]
            return answer if answer.status == 200 and not missing else None

        seen: list[str] = []
        try:
            return eventually(shows, what=f"{path} as {user} sees it")
        except AssertionError as late:
            log = "\n".join(self.site.muster.log.splitlines()[-20:])
            raise AssertionError(f"{late}; {seen[0]}\n{log}") from late


MAIN = re.compile(r"<main.*</main>", re.DOTALL)


def parted_gpu(node: str) -> list[Any]:
    """A node with one GPU that is handed out whole or in halves, as MIG slices are."""
    memory = {"gpu-0": 80, "gpu-0-half-0": 40, "gpu-0-half-1": 40}
    counters = [{"name": "gpu-0-memory", "counters": {"memory": {"value": "80Gi"}}}]
    devices = [
        {
            "name": name,
            "attributes": {
                "type": {"string": "gpu"},
                "profile": {"string": "whole" if size == 80 else "half"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:07"},
            },
            "consumesCounters": [{"counterSet": "gpu-0-memory", "counters": {"memory": {"value": f"{size}Gi"}}}],
        }
        for name, size in memory.items()
    ]
    slices = [fleet.resource_slice(node, given, driver=PARTS) for given in ([], devices)]
    for number, one in enumerate(slices):
        one["metadata"]["name"] += f"-{number}"
        one["spec"]["pool"]["resourceSliceCount"] = 2
    del slices[0]["spec"]["devices"]
    slices[0]["spec"]["sharedCounters"] = counters
    return [fleet.device_class(PARTS, driver=PARTS), fleet.node(node), *slices]


hardware = fixtures.hardware([*fleet.demo_fleet([4], prefix="whole"), *parted_gpu("parted-1")])


@pytest.fixture(scope="module")
def team(control_plane: ControlPlane, muster: Muster) -> Iterator[Team]:
    """A team that alice belongs to and bob does not: she has the rights of docs/dashboard.md."""
    client = control_plane.client()
    namespace = Namespace(name=NAMESPACE, client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    made = found_team(control_plane, namespace, gpus=4, unmeteredClasses="Allow")
    granted = rights(made.queue)
    for path, body in granted:
        client.create(path, body)
    yield made
    for path, body in granted:
        client.delete(f"{path}/{body['metadata']['name']}")
    namespace.empty()
    client.delete(f"/api/v1/namespaces/{NAMESPACE}")


def rights(queue: str) -> list[tuple[str, Any]]:
    """The example of docs/dashboard.md for this queue, bound to alice's group."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "dashboard.md").read_text(), re.DOTALL)
    [example] = [block for block in blocks if "[ledgers]" in block]
    changed = example.replace("[team-a]", f"[{queue}]").replace("namespace: team-a", f"namespace: {NAMESPACE}")
    documents = list(yaml.safe_load_all(changed))
    paths = {
        "ClusterRole": f"{RBAC}/clusterroles",
        "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
        "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
        "RoleBinding": f"{RBAC}/namespaces/{NAMESPACE}/rolebindings",
    }
    return [(paths[document["kind"]], document) for document in documents]


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, muster: Muster, team: Team, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder, signers = tmp_path_factory.mktemp("dashboard"), Signers()
    account = sites.grant(control_plane)
    settings = sites.settings(control_plane, account, folder, signers)
    shown = Muster(control_plane, database=muster.database, granting=False, **settings)
    site = Site(muster=shown.start(), authority=signers.pages.certificate(folder / "pages-ca.crt"))
    team.submit("train", pods=3)
    half = {"cel": {"expression": f"device.attributes['{PARTS}'].profile == 'half'"}}
    request = {"name": "gpu", "exactly": {"deviceClassName": PARTS, "selectors": [half]}}
    team.namespace.create(workloads.claim_template("half", request))
    control_plane.client().create(team.jobs, job("slice", pods=1, template="half", annotations={}))
    team.wait_running("train", 3)
    team.wait_running("slice", 1)
    # Of whole seconds, as a person writes it.
    running = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    team.submit("more", pods=4)
    team.wait_held("more", "QuotaExceeded")
    yield World(
        control_plane=control_plane,
        muster=muster,
        team=team,
        site=site,
        account=account,
        signers=signers,
        running=running,
    )
    shown.clean()


# What is seen.


def test_who_has_the_rights_sees_the_queue_and_how_its_gangs_stand(cluster: World) -> None:
    queue = cluster.team.queue

    cluster.see("/", f"{NAMESPACE}/more", "QuotaExceeded", queue, user="alice")
    cluster.see("/queues", queue, user="alice")
    cluster.see(f"/queues/{queue}", "3 of 4 taken", f"{NAMESPACE}/train", f"{NAMESPACE}/more", user="alice")
    cluster.see("/gangs?reason=QuotaExceeded", f"{NAMESPACE}/more", user="alice")


def test_a_gang_that_waits_says_for_what(cluster: World) -> None:
    answer = cluster.see(f"/gangs/{gang(cluster, 'more')}", "Waits: QuotaExceeded", "1 gpus left", user="alice")

    assert "The numbers behind it" in answer.text


def test_a_gangs_life_is_shown_with_its_devices_and_its_entries(cluster: World) -> None:
    answer = cluster.see(f"/gangs/{gang(cluster, 'train')}", "PCIe root pci0000:00", "kind-settle", user="alice")

    assert answer.text.count(f"held by {NAMESPACE}/") >= 3
    assert re.search(r'aria-current="step">(Admitted|Running)<', answer.text)
    assert "kind-reserve" in answer.text


def test_a_gangs_pods_and_events_are_shown_to_whoever_may_list_them(cluster: World) -> None:
    """alice may see the gang, and lists neither pods nor Events with kubectl; admin does."""
    path = f"/gangs/{gang(cluster, 'train')}"

    shown = cluster.see(path, ">Running</span> 3", "Job train", "SuccessfulCreate", f"Gang {path.rpartition('/')[2]}")
    hidden = cluster.see(path, f"the right to list pods in namespace {NAMESPACE}", user="alice")

    pods = cluster.control_plane.client().get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    ours = [one["metadata"]["name"] for one in pods if one["metadata"]["name"].startswith("train-")]
    table = shown.text[shown.text.index('id="pods"') : shown.text.index('id="plan"')]
    assert len(ours) == 3
    assert [name for name in ours if name not in table] == []
    assert f"the right to list events in namespace {NAMESPACE}" in hidden.text
    assert "SuccessfulCreate" not in hidden.text
    waits = cluster.see(f"/gangs/{gang(cluster, 'more')}", ">SchedulingGated</span> 4")
    assert "QuotaExceeded" in waits.text


@pytest.mark.since("1.36", "parts of devices are not given away")
def test_a_part_of_a_gpu_is_drawn_as_a_part(cluster: World) -> None:
    answer = cluster.see("/devices/parted-1", "PCIe root pci0000:07", user="alice")

    assert re.search(rf"gpu-0-half-[01]: held by {NAMESPACE}/", answer.text)
    assert "0 of 1 free" in answer.text
    assert re.search(r'<g class="piece piece-free"', answer.text), "the other half is free"


def test_the_books_are_searched_and_stated(cluster: World) -> None:
    queue = cluster.team.queue

    cluster.see(f"/ledger?queue={queue}", f"{NAMESPACE}/train", "kind-reserve", user="alice")
    cluster.see(f"/ledger/statements/{queue}", f"Statement of {queue}", f"{NAMESPACE}/train", user="alice")
    cluster.see(f"/ledger/use?queue={queue}", "Device-hours", user="alice")


def test_somebody_signs_in_with_a_browser_and_follows_a_gang_to_its_node(cluster: World) -> None:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.path(), args=["--no-sandbox"])
        page = chromium.new_context(ignore_https_errors=True).new_page()
        refused: list[str] = []
        page.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)
        page.goto(f"{cluster.site.url}/gangs")
        page.fill("#token", cluster.token("alice"))
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name=gang(cluster, "train")).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Gang train")
        page.get_by_role("link", name="whole-1").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("whole-1")
        cookies = {cookie["name"]: cookie for cookie in page.context.cookies()}
        chromium.close()

    session = cookies["__Host-muster-session"]
    assert session["secure"]
    assert session["httpOnly"]
    assert refused == []


def gang(cluster: World, name: str) -> str:
    """Return `namespace/name` of a Job's gang."""
    return cluster.team.key(name)


# Who is refused.


def test_who_has_no_right_is_told_which_one_is_missing(cluster: World) -> None:
    paths = {
        "/queues": "list queues.muster.dev",
        f"/gangs/{gang(cluster, 'train')}": f"get gangs.muster.dev {gang(cluster, 'train').partition('/')[2]}",
        "/devices": "list resourceslices.resource.k8s.io",
        "/past": "list ledgers.muster.dev",
        f"/ledger/statements/{cluster.team.queue}": f"get ledgers.muster.dev {cluster.team.queue}",
    }
    for path, right in paths.items():
        answer = cluster.site.get(path, token=cluster.token("bob"))
        assert answer.status == 403, path
        assert right in answer.text
        assert "gpu-" not in answer.text

    seen = cluster.site.get("/gangs", token=cluster.token("bob"))
    assert "train" not in seen.text


def test_a_member_sees_no_more_than_their_own(cluster: World) -> None:
    assert cluster.site.get("/past", token=cluster.token("alice")).status == 403
    assert cluster.site.get("/ledger", token=cluster.token("alice")).status == 403


def test_whoever_brings_no_token_or_a_wrong_one_is_asked_in(cluster: World) -> None:
    for token in ("", "wrong", cluster.token("alice")[:-1]):
        answer = cluster.site.get("/gangs", token=token)
        assert (answer.status, answer.headers["Location"]) == (303, "/login?next=/gangs")


def test_a_proxy_is_believed_by_its_certificate_and_nobody_else_is(cluster: World, tmp_path: Path) -> None:
    proxy = cluster.signers.proxies.leaf(tmp_path / "proxy", "oauth2-proxy")
    other = cluster.signers.proxies.leaf(tmp_path / "other", "somebody")
    alice = {"X-Forwarded-User": "alice", "X-Forwarded-Groups": "team-a"}

    believed = cluster.site.get("/gangs", shows=proxy, headers=alice)
    forged = [cluster.site.get("/gangs", shows=shown, headers=alice) for shown in (None, other)]

    assert (believed.status, gang(cluster, "train") in believed.text) == (200, True)
    assert [answer.status for answer in forged] == [303, 303]
    foreign = Signer("foreign").leaf(tmp_path / "foreign", "oauth2-proxy")
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        cluster.site.get("/gangs", shows=foreign, headers=alice)
    system = cluster.site.get("/gangs", shows=proxy, headers={"X-Forwarded-User": "system:admin"})
    assert system.status == 403


def test_nothing_is_served_in_the_clear_or_by_another_certificate(cluster: World) -> None:
    plain = http.client.HTTPConnection(sites.HOST, cluster.site.port, timeout=30)
    plain.request("GET", "/login")
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    trusting = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        http.client.HTTPSConnection(sites.HOST, cluster.site.port, context=trusting, timeout=30).connect()


# What the account may do.


def test_the_account_may_do_what_the_dashboard_needs_and_no_more(cluster: World) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": NAMESPACE},
    }
    found = cluster.account.create(RULES, review)["status"]["resourceRules"]

    every = {
        f"{verb} {name}.{group}"
        for rule in found
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    # What everybody who is known may do (ClusterRoles system:basic-user and system:cluster-trust-bundle-discovery).
    own = {f"create selfsubject{what}.authorization.k8s.io" for what in ("accessreviews", "rulesreviews")}
    own |= {f"{verb} clustertrustbundles.certificates.k8s.io" for verb in ("get", "list", "watch")}
    shown = ("queues.muster.dev", "meters.muster.dev", "gangs.muster.dev", "nodeshapes.muster.dev", "nodes.")
    devices = [f"{name}.resource.k8s.io" for name in ("resourceslices", "resourceclaims", "deviceclasses")]
    assert every - own == {
        *(f"{verb} {name}" for verb in ("list", "watch") for name in (*shown, *devices)),
        "list pods.",
        "list events.",
        "create tokenreviews.authentication.k8s.io",
        "create selfsubjectreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
    }


FORBIDDEN: dict[str, Callable[[Client, str], object]] = {
    "a pod by its name": lambda client, _: client.get(f"/api/v1/namespaces/{NAMESPACE}/pods/train-0"),
    "changes of pods": lambda client, _: client.get(f"/api/v1/namespaces/{NAMESPACE}/pods?watch=true&timeoutSeconds=1"),
    "secrets": lambda client, _: client.get("/api/v1/namespaces/muster-system/secrets"),
    "the webhook's authorities": lambda client, _: client.get(musters.SECRET),
    "a queue, to change it": lambda client, queue: client.merge_patch(f"{GROUP}/queues/{queue}", {"spec": {}}),
}


@pytest.mark.parametrize("call", FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_api_server_refuses_the_account(cluster: World, call: Callable[[Client, str], object]) -> None:
    with pytest.raises(ApiError) as refused:
        call(cluster.account, cluster.team.queue)

    assert refused.value.code == 403


def test_the_dashboard_never_lacked_a_right(cluster: World) -> None:
    cluster.see("/devices", "whole-1", "parted-1")

    log = cluster.site.muster.log
    assert "system:serviceaccount:muster-system:muster-dashboard" in log
    assert "; grant " not in log
    assert "orbidden" not in log
    assert [line for line in log.splitlines() if "[error" in line or "the watch failed" in line] == []


# Its manifests.


def test_the_api_server_takes_its_manifests_and_what_helm_renders(cluster: World, tmp_path: Path) -> None:
    values = [
        "image.repository=registry.example.com/muster",
        "dashboard.enabled=true",
        "dashboard.tls.secret=pages-tls",
        "dashboard.tls.authority=proxies",
        "dashboard.sessions.secret=sessions",
        "dashboard.replicas=2",
        "settings.dashboard.user_header=X-Forwarded-User",
    ]
    words = [str(building.helm()), "template", "muster", str(ROOT / "deploy/chart"), "-n", "muster-system"]
    environment = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}
    rendered = subprocess.run(
        [*words, *(word for value in values for word in ("--set", value))],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout

    for text in (sites.MANIFEST.read_text(), rendered):
        said = cluster.control_plane.kubectl(*DRY, input=text)
        assert "deployment.apps/muster-dashboard serverside-applied (server dry run)" in said
        assert "networkpolicy.networking.k8s.io/muster-dashboard serverside-applied (server dry run)" in said


def test_the_dashboards_pods_keep_to_the_restricted_standard(cluster: World) -> None:
    [deployment] = [one for one in yaml.safe_load_all(sites.MANIFEST.read_text()) if one["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    pod = {"metadata": {"name": "standard", **template["metadata"]}, "spec": template["spec"]}

    # The namespace of deploy/manifests enforces the standard, so the API server is the judge.
    made = cluster.control_plane.client().create("/api/v1/namespaces/muster-system/pods?dryRun=All", pod)

    assert made["spec"]["serviceAccountName"] == "muster-dashboard"


# Time.


def test_the_past_stays_as_it_was(cluster: World) -> None:
    then = f"/past?at={cluster.running:%Y-%m-%dT%H:%M:%SZ}"
    train = gang(cluster, "train")
    cluster.see(then, train, "Who held what")

    cluster.team.finish("train")
    cluster.team.wait_running("more", 4)

    now = eventually(lambda: shown_now(cluster, without=train), what=f"{train} holds nothing any more")
    assert f"{NAMESPACE}/more" in now.text
    past = cluster.see(then, train)
    assert f"{NAMESPACE}/more" not in past.text
    cluster.see(f"/ledger?queue={cluster.team.queue}&gang=train", "kind-release")


def shown_now(cluster: World, *, without: str) -> Answer | None:
    answer = cluster.site.get(f"/past?at={datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", token=cluster.token("admin"))
    return answer if answer.status == 200 and without not in answer.text else None
