"""What the accounts of the chart may do."""

from collections.abc import Mapping
from typing import Any

import pytest

from admission.kube.cache import dashboard_store, watched_resources
from tests.integration.chart.charts import (
    COVERAGE,
    DASHBOARD,
    HOOKS,
    NAMESPACE,
    ROLES,
    SMOKE_TEST,
    UNINSTALL,
    Helm,
    pod,
    rendered,
)

pytestmark = pytest.mark.timeout(120, func_only=True)

READ = ["list", "watch"]
LISTED = ["list"]
ASKED = ["create"]


def test_the_dashboard_role_may_read_shown_kinds_and_create_access_reviews(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD)

    rules = objects["ClusterRole", "muster-dashboard"]["rules"]
    found = {f"{name}.{rule['apiGroups'][0]}": rule["verbs"] for rule in rules for name in rule["resources"]}
    assert found == {
        **{f"{kind.plural}.{kind.group}": READ for kind in dashboard_store.WATCHED},
        "pods.": LISTED,
        "events.": LISTED,
        "tokenreviews.authentication.k8s.io": ASKED,
        "selfsubjectreviews.authentication.k8s.io": ASKED,
        "subjectaccessreviews.authorization.k8s.io": ASKED,
    }
    subjects = objects["ClusterRoleBinding", "muster-dashboard"]["subjects"]
    assert [one["name"] for one in subjects] == [pod(objects, "dashboard")["serviceAccountName"]]
    assert subjects[0]["name"] != pod(objects, "controller")["serviceAccountName"]
    assert not any(kind in ("Role", "RoleBinding") and name == "muster-dashboard" for kind, name in objects)


def test_each_role_has_an_account_of_its_own_and_roles_that_name_it_alone(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD)

    accounts = {role: pod(objects, role)["serviceAccountName"] for role in ROLES}
    assert accounts == {"webhook": "muster-webhook", "controller": "muster", "dashboard": "muster-dashboard"}
    assert {name for kind, name in objects if kind == "ServiceAccount"} == {*accounts.values(), *HOOKS}
    for (kind, name), found in objects.items():
        if kind.endswith("RoleBinding"):
            assert found["roleRef"]["name"] == name
            assert [(one["kind"], one["name"], one["namespace"]) for one in found["subjects"]] == [
                ("ServiceAccount", name, NAMESPACE)
            ]


@pytest.mark.parametrize("aggregated", [False, True])
def test_people_who_are_bound_to_it_read_gangs_and_ask_of_them_and_those_with_edit_where_it_is_aggregated(
    helm: Helm, aggregated: bool
) -> None:
    objects = rendered(helm, f"gangUser.aggregateToEdit={str(aggregated).lower()}")

    role = objects["ClusterRole", "muster-gang-user"]
    labels = [name for name in role["metadata"]["labels"] if name.startswith("rbac.authorization.k8s.io/")]
    assert labels == (["rbac.authorization.k8s.io/aggregate-to-edit"] if aggregated else [])
    assert role["rules"] == [
        {"apiGroups": ["muster.dev"], "resources": ["gangs"], "verbs": ["get", "list", "watch", "patch"]}
    ]
    bound = [found["roleRef"]["name"] for (kind, _), found in objects.items() if kind.endswith("RoleBinding")]
    assert "muster-gang-user" not in bound


REVIEWS = {"tokenreviews", "selfsubjectreviews", "subjectaccessreviews"}
"""What is asked by creating it, and stored nowhere."""


@pytest.mark.parametrize("account", ["muster-webhook", "muster-dashboard"])
def test_who_answers_others_may_write_nothing(helm: Helm, account: str) -> None:
    objects = rendered(helm, DASHBOARD, COVERAGE, 'settings.fence=["gpu.example.com"]')

    granted = {
        (resource, verb)
        for (kind, name), found in objects.items()
        if kind in ("ClusterRole", "Role") and name == account
        for rule in found["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(resource, verb) for resource, verb in granted if verb not in ("get", "list", "watch")} <= {
        (resource, "create") for resource in REVIEWS
    }
    assert granted


def test_no_role_has_a_wildcard_or_reads_a_secret_or_config_map_that_it_does_not_name(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, COVERAGE)

    for (kind, _), found in objects.items():
        for rule in found["rules"] if kind in ("ClusterRole", "Role") else ():
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            if {"secrets", "configmaps"} & {*rule["resources"]}:
                assert kind == "Role"
                assert rule.get("resourceNames") or rule["verbs"] == ["create"], "names do not restrict `create`"


CERT_MANAGER, NO_HEADS = "webhook.certManager.enabled=true", "settings.heads.enabled=false"


def secret_rules(objects: Mapping[tuple[str, str], Any], account: str) -> list[tuple[list[str], list[str]]]:
    """Return the names and verbs of an account's rules about Secrets; no names: all of them."""
    rules = objects.get(("Role", account), {}).get("rules", ())
    return [(rule.get("resourceNames", []), rule["verbs"]) for rule in rules if "secrets" in rule["resources"]]


@pytest.mark.parametrize("settings", [(), (CERT_MANAGER,)])
def test_the_controller_writes_the_secret_of_the_webhooks_paths_and_the_webhook_reads_it(
    helm: Helm, settings: tuple[str, ...]
) -> None:
    objects = rendered(helm, NO_HEADS, *settings)

    assert secret_rules(objects, "muster-webhook") == [(["muster-webhook"], ["get"])]
    assert secret_rules(objects, "muster") == [([], ["create"]), (["muster-webhook"], ["get", "update"])]


def test_the_job_before_uninstalling_runs_as_an_account_that_exists_for_it_alone(helm: Helm) -> None:
    objects = rendered(helm, "settings.webhook.linger=3")

    hooks = {key: found["metadata"]["annotations"] for key, found in objects.items() if key[1] == UNINSTALL}
    assert {one["helm.sh/hook"] for one in hooks.values()} == {"pre-delete"}
    assert {key[0] for key, one in hooks.items() if one.get("helm.sh/hook-weight") == "-1"} == {
        *("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    }
    template = objects["Job", UNINSTALL]["spec"]["template"]
    [container] = template["spec"]["containers"]
    assert container["args"] == ["uninstall", "--yes", "--namespace", NAMESPACE]
    assert template["spec"]["serviceAccountName"] == UNINSTALL
    selected = objects["NetworkPolicy", "muster-controller"]["spec"]["podSelector"]["matchLabels"]
    assert not selected.items() <= template["metadata"]["labels"].items(), "a policy would cut it off"
    assert not any(name == UNINSTALL for _, name in rendered(helm, "uninstall.enabled=false"))


def test_the_smoke_tests_account_reads_and_deletes_what_has_its_name_alone(helm: Helm) -> None:
    objects = rendered(helm, "image.digest=sha256:" + "0" * 64)

    hooks = {key: found["metadata"]["annotations"] for key, found in objects.items() if key[1] == SMOKE_TEST}
    assert {one["helm.sh/hook"] for one in hooks.values()} == {"test"}
    for rule in objects["ClusterRole", SMOKE_TEST]["rules"]:
        assert rule["verbs"] in (["create"], ["list"]) or rule["resourceNames"] == [SMOKE_TEST], rule
    spec = objects["Pod", SMOKE_TEST]["spec"]
    [container] = spec["containers"]
    assert spec["serviceAccountName"] == SMOKE_TEST
    assert container["args"] == ["smoke-test", "--image", container["image"]]
    other = rendered(helm, "smokeTest.image=busybox:1.37")["Pod", SMOKE_TEST]["spec"]["containers"][0]
    assert other["args"] == ["smoke-test", "--image", "busybox:1.37"]


def test_the_webhook_reads_what_it_watches_and_no_more(helm: Helm) -> None:
    rules = rendered(helm)["ClusterRole", "muster-webhook"]["rules"]

    granted = {
        (group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if rule["verbs"] == READ
    }
    assert granted == {(kind.group, kind.plural) for kind in watched_resources.ADMISSION}
    others = [rule for rule in rules if rule["verbs"] == ["get"]]
    assert [(rule["resources"], rule["resourceNames"]) for rule in others] == [
        (["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], ["muster"])
    ], "by which paths the API server calls it"


@pytest.mark.parametrize("asked", [COVERAGE, 'settings.fence=["gpu.example.com"]'])
def test_without_fences_the_role_may_delete_fence_objects_but_not_create_them(helm: Helm, asked: str) -> None:
    plain, fencing = (granted(rendered(helm, *values)) for values in ((), (asked,)))

    assert plain < fencing
    assert fencing - plain == {
        *(("devicetaintrules", verb) for verb in ("create", "update")),
        *((f"validatingadmission{kind}", verb) for kind in KINDS for verb in ("watch", "update")),
        *((f"{kind}webhookconfigurations", verb) for kind in ("mutating", "validating") for verb in READ),
        ("resourceclaims", "create"),
    }
    assert {("devicetaintrules", "delete"), ("validatingadmissionpolicies", "delete")} < plain


def test_the_right_to_publish_heads_is_given_only_where_they_are_signed(helm: Helm) -> None:
    signing, silent = granted(rendered(helm)), granted(rendered(helm, "settings.heads.enabled=false"))

    assert signing - silent == {("configmaps", verb) for verb in ("create", "get", "update")}
    named = [name for rule in rendered(helm)["Role", "muster"]["rules"] for name in rule.get("resourceNames", ())]
    assert {"muster-heads", "muster-heads-key"} <= set(named)


KINDS = ("policies", "policybindings")


def granted(objects: dict[tuple[str, str], Any]) -> set[tuple[str, str]]:
    """Return what webhook and controller may do."""
    rules = [*objects["ClusterRole", "muster"]["rules"], *objects["Role", "muster"]["rules"]]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
