"""Fences and policies as they are kept in a cluster, and what is said of them."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.api.values.selectors import LabelSelector
from admission.kube import admission_policies, desired_state, fence_controller
from admission.kube.client.connection import Connection
from admission.kube.fence_controller import FenceController, FenceSettings
from admission.kube.webhook_config import namespace_selectors, registration as webhook_config_registration
from admission.kube.webhook_config.client_config import ClientConfig
from admission.kube.webhook_config.registration import Registration
from tests.builders import CLASS, NOON
from tests.integration.kube.fake_api import FakeApi

RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
ROOT = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ROOT}/validatingadmissionpolicies"
BINDINGS = f"{ROOT}/validatingadmissionpolicybindings"
WEBHOOKS = {kind: f"{ROOT}/{plural}" for kind, plural in webhook_config_registration.KINDS.items()}
PROBES = "/apis/resource.k8s.io/v1/namespaces/muster-system/resourceclaims"
NAME = f"muster-fence-{CLASS}"
MUSTER = "system:serviceaccount:muster-system:muster"
FENCE = FenceSettings(namespace="muster-system", controller=MUSTER, fence=(CLASS,))
COVERAGE = FenceSettings(namespace="muster-system", controller=MUSTER, coverage=True)

Keeping = Callable[[FenceController], Awaitable[None]]


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def running(controller: FenceController) -> AsyncIterator[FenceController]:
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - nothing tells of troubles
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def heeded(api: FakeApi) -> None:
    api.refusing = admission_policies.FENCE


@pytest.fixture
def controller(connection: Connection) -> FenceController:
    return FenceController(connection, FENCE, clock=Clock())


async def raised(api: FakeApi, controller: FenceController) -> None:
    """Wait until the policy stands, then have the rule put up."""
    await until(lambda: controller.observe().policy)
    controller.set_drivers(frozenset({CLASS}))
    await until(lambda: controller.observe().rules)


async def test_the_fence_policy_is_written_first_and_the_taint_rule_when_wanted(
    api: FakeApi, controller: FenceController
) -> None:
    async with running(controller):
        await until(lambda: controller.observe().policy)
        assert not api.objects[RULES]

        controller.set_drivers(frozenset({CLASS}))
        await until(lambda: controller.observe().rules)

    assert controller.observe().rules == {CLASS: NOON}
    assert controller.observe().policy == NOON
    rule = api.objects[RULES][NAME]
    assert rule["spec"] == {
        "deviceSelector": {"driver": CLASS},
        "taint": {"key": "muster.dev/fence", "value": "Muster", "effect": "NoSchedule"},
    }
    assert rule["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "muster"}
    assert api.objects[BINDINGS]["muster-fence"]["spec"] == {
        "policyName": "muster-fence",
        "validationActions": ["Deny"],
    }


@pytest.mark.parametrize(
    ("collection", "name"), [(RULES, NAME), (POLICIES, "muster-fence"), (BINDINGS, "muster-fence")]
)
async def test_a_deleted_fence_object_stops_counting_at_once_and_is_created_again(
    api: FakeApi, controller: FenceController, collection: str, name: str
) -> None:
    async with running(controller):
        await raised(api, controller)
        made = {api.objects[collection][name]["metadata"]["uid"]}

        for _ in range(2):
            api.answer("POST", collection, 403)  # for a moment, so that one sees it missing
            api.delete(collection, name)
            await until(lambda: not (controller.observe().rules and controller.observe().policy))
            await until(lambda: controller.observe().rules and controller.observe().policy)
            made.add(api.objects[collection][name]["metadata"]["uid"])

    assert len(made) == 3


CHANGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "another taint": (RULES, NAME, {"taint": {"key": "example.com/x", "effect": "NoSchedule"}}),
    "fewer devices": (RULES, NAME, {"deviceSelector": {"driver": CLASS, "pool": "a"}}),
    "an exception": (BINDINGS, "muster-fence", {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
    "no more than a warning": (BINDINGS, "muster-fence", {"validationActions": ["Warn"]}),
    "another condition": (POLICIES, "muster-fence", {"matchConditions": [{"name": "x", "expression": "false"}]}),
}


@pytest.mark.parametrize(("collection", "name", "change"), CHANGES.values(), ids=CHANGES)
async def test_a_fence_object_changed_by_others_stops_counting_and_is_replaced(
    api: FakeApi, controller: FenceController, collection: str, name: str, change: dict[str, Any]
) -> None:
    async with running(controller):
        await raised(api, controller)
        right = copy.deepcopy(api.objects[collection][name]["spec"])

        changed = copy.deepcopy(api.objects[collection][name])
        changed["spec"] |= change
        api.answer("PUT", f"{collection}/{name}", 403)
        api.put(collection, changed)

        await until(lambda: not (controller.observe().rules and controller.observe().policy))
        await until(lambda: controller.observe().rules and controller.observe().policy)

    assert api.objects[collection][name]["spec"] == right


async def test_fields_that_the_api_server_adds_to_a_taint_rule_are_no_change(
    api: FakeApi, controller: FenceController
) -> None:
    async with running(controller):
        await raised(api, controller)
        timed = copy.deepcopy(api.objects[RULES][NAME])
        timed["spec"]["taint"]["timeAdded"] = "2026-11-21T12:00:00Z"
        version = api.put(RULES, timed)["metadata"]["resourceVersion"]
        table = controller.store.tables[fence_controller.RULES]
        await until(lambda: (rule := table.find(NAME)) and rule.meta.resource_version == version)

        assert controller.observe().rules


async def test_a_fence_of_an_earlier_leader_stands_without_a_gap(api: FakeApi, controller: FenceController) -> None:
    async with running(controller):
        await raised(api, controller)
    stood = copy.deepcopy(api.objects[RULES][NAME])
    stray = {"metadata": {"name": "muster-fence-nic"}, "spec": {"taint": {"key": "muster.dev/fence", "effect": "X"}}}
    api.put(RULES, stray)
    successor = FenceController(controller._connection, FENCE, clock=Clock())

    successor.set_drivers(frozenset())  # its first cycle may be over before it is seen what stands
    async with running(successor):
        await until(lambda: successor.observe().policy and "muster-fence-nic" not in api.objects[RULES])
        successor.set_drivers(frozenset({CLASS}))
        await until(lambda: successor.observe().rules)

    assert api.objects[RULES] == {NAME: stood}


async def test_a_fence_that_is_not_wanted_any_more_goes_and_others_rules_stay(
    api: FakeApi, controller: FenceController
) -> None:
    theirs = {"metadata": {"name": "theirs"}, "spec": {"taint": {"key": "example.com/broken", "effect": "NoExecute"}}}
    stray = {"metadata": {"name": "muster-fence-nic"}, "spec": {"taint": {"key": "muster.dev/fence", "effect": "X"}}}
    api.put(RULES, theirs)
    api.put(RULES, stray)
    async with running(controller):
        await raised(api, controller)
        assert api.objects[RULES].keys() == {"theirs", NAME}

        controller.set_drivers(frozenset())
        await until(lambda: not controller.observe().rules)

    assert api.objects[RULES].keys() == {"theirs"}
    assert api.objects[POLICIES].keys() == {"muster-fence"}, "it is needed to put the fence up again"


async def test_the_fence_controller_reports_that_taint_rules_are_not_served(
    api: FakeApi, controller: FenceController
) -> None:
    api.absent |= {RULES, RULES.replace("/v1/", "/v1beta2/")}
    async with running(controller):
        await until(lambda: controller.observe().policy)

        assert not controller.observe().served
        controller.set_drivers(frozenset({CLASS}))
        await asyncio.sleep(0.05)

    assert not controller.observe().rules
    assert not controller.observe().trouble


async def test_an_earlier_version_of_rules_does_as_well(api: FakeApi, controller: FenceController) -> None:
    older = RULES.replace("/v1/", "/v1beta2/")
    api.absent.add(RULES)
    async with running(controller):
        await raised(api, controller)

    assert controller.observe().served
    assert api.objects[older][NAME]["apiVersion"] == "resource.k8s.io/v1beta2"


async def test_a_forbidden_fence_write_is_reported_with_the_missing_right_until_it_is_granted(
    api: FakeApi, controller: FenceController
) -> None:
    for _ in range(3):
        refusal = 'User "muster" cannot create resource "validatingadmissionpolicies" in API group'
        api.answer("POST", POLICIES, 403, {"message": refusal, "reason": "Forbidden"})
    async with running(controller):
        await until(lambda: "grant verb create on resource validatingadmissionpolicies" in controller.observe().trouble)
        assert controller.observe().troubled == NOON
        assert controller.observe().policy is None

        await until(lambda: controller.observe().policy)

    assert not controller.observe().trouble
    assert controller.observe().troubled is None


async def test_a_policy_that_lets_everything_through_does_not_count(
    api: FakeApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_controller, "AGAIN_SECONDS", 0.01)
    api.refusing, clock = "another policy", Clock()
    controller = FenceController(connection, FENCE, clock=clock)
    async with running(controller):
        await until(lambda: api.count("POST", PROBES, dryRun="All"))
        assert not controller.observe().trouble, "it may not be heeded yet"
        assert controller.observe().policy is None

        clock.now += timedelta(minutes=1)
        await until(lambda: "admission plugin ValidatingAdmissionPolicy" in controller.observe().trouble)
        assert controller.observe().policy is None

        api.refusing = admission_policies.FENCE
        await until(lambda: controller.observe().policy)


async def test_an_unchanged_fence_counts_from_its_creation_and_a_changed_fence_from_the_change(
    api: FakeApi, connection: Connection
) -> None:
    old, clock = (NOON - timedelta(hours=1)).isoformat(), Clock()
    metadata = {"name": NAME, "creationTimestamp": old, "generation": 1}
    api.put(RULES, {"metadata": metadata, "spec": fence_controller.rule(CLASS)})
    controller = FenceController(connection, FENCE, clock=clock)
    controller.set_drivers(frozenset({CLASS}))
    async with running(controller):
        await until(lambda: controller.observe().rules)
        assert controller.observe().rules == {CLASS: NOON - timedelta(hours=1)}

        clock.now = NOON + timedelta(minutes=1)
        api.put(RULES, {"metadata": metadata | {"generation": 3}, "spec": fence_controller.rule(CLASS)})
        await until(lambda: controller.observe().rules == {CLASS: clock.now})


async def test_without_wanted_drivers_left_over_fence_objects_are_deleted(api: FakeApi, connection: Connection) -> None:
    api.put(RULES, {"metadata": {"name": NAME}, "spec": fence_controller.rule(CLASS)})
    api.put(RULES, {"metadata": {"name": "theirs"}, "spec": fence_controller.rule(CLASS)})
    for collection in (POLICIES, BINDINGS):
        for name in ("muster-fence", "muster-coverage", "theirs"):
            api.put(collection, {"metadata": {"name": name}, "spec": {}})
    controller = FenceController(connection, FenceSettings(namespace="muster-system", controller=MUSTER))
    api.answer("DELETE", f"{BINDINGS}/muster-fence", 409)

    await controller.run()

    assert controller.observe().fence == ()
    assert [set(api.objects[where]) for where in (RULES, POLICIES, BINDINGS)] == [{"theirs"}] * 3


async def test_the_fence_of_a_single_driver_can_be_lifted(api: FakeApi, connection: Connection) -> None:
    for driver in (CLASS, "nic.example.com"):
        api.put(RULES, {"metadata": {"name": f"muster-fence-{driver}"}, "spec": fence_controller.rule(driver)})
    api.put(POLICIES, {"metadata": {"name": "muster-fence"}, "spec": {}})

    api.put(BINDINGS, {"metadata": {"name": "muster-coverage"}, "spec": {}})
    found = await fence_controller.cluster_fences(connection)
    assert [driver for driver, _ in found.fences] == [CLASS, "nic.example.com"]
    assert found.policies == ["muster-coverage"]

    assert await fence_controller.lift(connection, [CLASS]) == [f"DeviceTaintRule {NAME}"]
    assert set(api.objects[RULES]) == {"muster-fence-nic.example.com"}
    assert await fence_controller.lift(connection) == [
        "DeviceTaintRule muster-fence-nic.example.com",
        "ValidatingAdmissionPolicyBinding muster-coverage",
        "ValidatingAdmissionPolicy muster-fence",
    ]


# Coverage.


def configurations(*selectors: LabelSelector) -> dict[str, dict[str, Any]]:
    client = ClientConfig(authority=b"PEM", url="https://muster:8443/")
    registration = Registration(client=client, selectors=selectors, namespace="muster-system", controller=MUSTER)
    return {
        body["kind"]: body
        for body in (
            webhook_config_registration.mutating(registration),
            webhook_config_registration.validating(registration),
        )
    }


def register(api: FakeApi, *selectors: LabelSelector) -> None:
    for kind, body in configurations(*selectors).items():
        api.put(WEBHOOKS[kind], body)


async def test_coverage_is_there_at_once_for_a_leader_that_finds_both_webhooks(
    api: FakeApi, connection: Connection
) -> None:
    api.refusing = admission_policies.COVERAGE
    register(api, LabelSelector())
    async with running(FenceController(connection, COVERAGE, clock=Clock())) as controller:
        await until(lambda: (seen := controller.observe().webhooks) and seen.since == NOON)


async def test_coverage_needs_both_webhooks_to_see_all_pods(api: FakeApi, connection: Connection) -> None:
    api.refusing = admission_policies.COVERAGE
    controller = FenceController(connection, COVERAGE, clock=Clock())
    async with running(controller):
        await until(lambda: (seen := controller.observe().webhooks) and seen.kept_out)
        webhooks = controller.observe().webhooks
        assert webhooks is not None
        assert webhooks.since is None
        assert webhooks.exempt == ("kube-system", "kube-node-lease", "kube-public", "muster-system")

        register(api, LabelSelector())
        await until(lambda: (seen := controller.observe().webhooks) and seen.since == NOON)

        api.delete(WEBHOOKS["MutatingWebhookConfiguration"], "muster")
        await until(lambda: (seen := controller.observe().webhooks) and seen.since is None)

    assert not api.objects[RULES]
    assert set(api.objects[POLICIES]) == {"muster-coverage"}
    among = api.objects[POLICIES]["muster-coverage"]["spec"]["matchConstraints"]["namespaceSelector"]
    assert among["matchExpressions"][0]["values"] == list(webhooks.exempt)


WEAKER: dict[str, dict[str, Any]] = {
    "it may be down": {"failurePolicy": "Ignore"},
    "it sees some namespaces": {"namespaceSelector": {"matchLabels": {"a": "b"}}},
    "it sees some pods": {"objectSelector": {"matchLabels": {"a": "b"}}},
    "it leaves pods out": {"matchConditions": [{"name": "x", "expression": "false"}]},
    "it sees no creation": {"rules": []},
}


@pytest.mark.parametrize("change", WEAKER.values(), ids=WEAKER)
@pytest.mark.parametrize("kind", webhook_config_registration.KINDS)
def test_a_webhook_does_not_see_all_pods_if(kind: str, change: dict[str, Any]) -> None:
    body = configurations(LabelSelector())[kind]
    assert webhook_config_registration.covers_all_pods(kind, body, namespace="muster-system", controller=MUSTER)

    name = f"queued-{namespace_selectors.digest(LabelSelector())}.pods.muster.dev"
    next(webhook for webhook in body["webhooks"] if webhook["name"] == name).update(change)

    assert not webhook_config_registration.covers_all_pods(kind, body, namespace="muster-system", controller=MUSTER)
    assert not webhook_config_registration.covers_all_pods(kind, {}, namespace="muster-system", controller=MUSTER)


def test_times_are_no_part_of_what_an_object_says() -> None:
    added = {"spec": {"taints": [{"key": "k", "timeAdded": datetime(2026, 1, 1, tzinfo=UTC).isoformat()}]}}

    assert desired_state.has_spec(added, {"taints": [{"key": "k"}]})
    assert not desired_state.has_spec({}, {"taints": []})
