from dataclasses import replace
from typing import Any

import pytest

from admission.api.values.selectors import LabelSelector, Requirement
from admission.errors import FixError
from admission.kube.webhook_config import (
    match_conditions,
    namespace_selectors,
    registration as webhook_config_registration,
)
from admission.kube.webhook_config.client_config import ClientConfig
from admission.kube.webhook_config.registration import Registration

ROOT = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{ROOT}/mutatingwebhookconfigurations/muster"
VALIDATING = f"{ROOT}/validatingwebhookconfigurations/muster"
MUSTER = "system:serviceaccount:muster-system:muster"
CLIENT = ClientConfig(authority=b"PEM", url="https://muster:8443/")
VISION = LabelSelector(requirements=(Requirement(key="team", operator="In", values=("vision",)),))
SPEECH = LabelSelector(requirements=(Requirement(key="team", operator="Exists"),))


OWN = "written.objects.muster.dev"
REQUIRED = "required.pods.muster.dev"


def a_registration(*selectors: LabelSelector, client: ClientConfig = CLIENT) -> Registration:
    return Registration(client=client, selectors=selectors, namespace="muster-system", controller=MUSTER)


def by_name(configuration: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {webhook["name"]: webhook for webhook in configuration["webhooks"]}


@pytest.mark.parametrize("encode", [webhook_config_registration.mutating, webhook_config_registration.validating])
def test_queued_namespaces_are_closed_while_muster_is_down_and_others_open(encode: Any) -> None:
    webhooks = by_name(encode(a_registration(VISION)))

    webhooks = {name: webhook for name, webhook in webhooks.items() if name.endswith(".pods.muster.dev")}
    queued = webhooks.pop(f"queued-{namespace_selectors.digest(VISION)}.pods.muster.dev")
    labelled = webhooks.pop("labelled.pods.muster.dev")
    assert set(webhooks) <= {REQUIRED}
    spared = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "kube-node-lease", "kube-public", "muster-system"],
    }
    assert queued["failurePolicy"] == "Fail"
    assert queued["namespaceSelector"]["matchExpressions"] == [
        {"key": "team", "operator": "In", "values": ["vision"]},
        spared,
    ]
    assert labelled["failurePolicy"] == "Ignore"
    elsewhere = {"key": "team", "operator": "NotIn", "values": ["vision"]}
    assert labelled["namespaceSelector"]["matchExpressions"] == [elsewhere, spared]
    assert labelled["objectSelector"] == {"matchExpressions": [{"key": "muster.dev/queue", "operator": "Exists"}]}


def chosen(*operators: str) -> list[LabelSelector]:
    requirements = [Requirement(key=f"key-{operator}", operator=operator, values=("a", "b")) for operator in operators]
    return [LabelSelector(requirements=(one,)) for one in requirements]


@pytest.mark.parametrize(
    "selectors",
    [
        [VISION, SPEECH],
        [VISION, LabelSelector(requirements=(Requirement(key="team", operator="In", values=("audio",)),))],
        chosen("In", "NotIn", "Exists", "DoesNotExist"),
        [LabelSelector(requirements=(*VISION.requirements, Requirement(key="stage", operator="Exists")))],
        [],
    ],
)
@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"team": "vision"},
        {"team": "audio", "stage": "x"},
        {"key-In": "a", "key-NotIn": "a"},
        {"key-NotIn": "b", "key-DoesNotExist": "x"},
        {"key-Exists": "x", "key-NotIn": "c"},
    ],
)
def test_a_namespace_with_a_webhook_of_its_own_is_not_shown_by_label_as_well(
    selectors: list[LabelSelector], labels: dict[str, str]
) -> None:
    """But for selectors of several requirements, the opposite of which is no selector."""
    labelled = by_name(webhook_config_registration.mutating(a_registration(*selectors)))["labelled.pods.muster.dev"]
    *opposite, _ = labelled["namespaceSelector"]["matchExpressions"]
    requirements = [
        Requirement(key=o["key"], operator=o["operator"], values=tuple(o.get("values", ()))) for o in opposite
    ]

    single = [selector for selector in selectors if len(selector.requirements) == 1]
    shown = any(selector.matches(labels) for selector in single)
    assert LabelSelector(requirements=tuple(requirements)).matches(labels) is not shown


def test_where_every_namespace_is_shown_none_is_by_label() -> None:
    webhooks = by_name(webhook_config_registration.mutating(a_registration(LabelSelector(), VISION)))

    assert "labelled.pods.muster.dev" not in webhooks


def test_a_user_whose_name_would_end_the_text_of_a_condition_does_not() -> None:
    client = ClientConfig(authority=b"", url="https://muster")
    odd = Registration(client=client, selectors=(), namespace="muster", controller='a"\\ || "é')

    webhook = webhook_config_registration.validating(odd)["webhooks"][0]

    expression = webhook["matchConditions"][0]["expression"]
    assert expression == 'request.operation != \'UPDATE\' || request.userInfo.username != "a\\"\\\\ || \\"é"'


def test_both_webhook_configurations_have_the_expected_settings() -> None:
    [_, mutating, _] = webhook_config_registration.mutating(a_registration())["webhooks"]
    [validating, *_] = webhook_config_registration.validating(a_registration())["webhooks"]

    for webhook in (mutating, validating):
        assert webhook["sideEffects"] == "None"
        assert webhook["timeoutSeconds"] == 5
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert webhook["rules"][0]["resources"] == ["pods"]
    assert mutating["reinvocationPolicy"] == "IfNeeded"
    assert mutating["rules"][0]["operations"] == ["CREATE"]
    assert validating["rules"][0]["operations"] == ["CREATE", "UPDATE"]
    assert [(rule["resources"], rule["operations"]) for rule in validating["rules"][1:]] == [
        (["pods/status"], ["UPDATE"]),
        (["pods/resize"], ["UPDATE"]),
    ]
    assert mutating["clientConfig"] == {"url": "https://muster:8443/mutate", "caBundle": "UEVN"}
    assert validating["clientConfig"]["url"] == "https://muster:8443/validate"
    assert [condition["name"] for condition in mutating["matchConditions"]] == ["no-mirror", "not-complete"]
    names = [condition["name"] for condition in validating["matchConditions"]]
    assert names == ["not-by-muster", "what-matters", "not-complete"]


def test_muster_objects_are_reviewed_and_stay_writable_while_muster_is_down() -> None:
    own = by_name(webhook_config_registration.validating(a_registration(VISION)))[OWN]

    assert own["failurePolicy"] == "Ignore"
    shown = [(rule["scope"], rule["resources"], rule["operations"]) for rule in own["rules"]]
    assert shown == [
        ("Cluster", ["queues", "meters", "claimpolicies", "nodeshapes"], ["CREATE", "UPDATE", "DELETE"]),
        ("Namespaced", ["gangs"], ["CREATE", "UPDATE"]),
    ]
    assert [condition["expression"] for condition in own["matchConditions"]] == [
        f"request.resource.resource != 'gangs' || request.userInfo.username != \"{MUSTER}\"",
        "request.operation != 'UPDATE' || object.spec != oldObject.spec",
    ]


def test_a_service_is_called_by_its_reference() -> None:
    client = ClientConfig(authority=b"PEM", service="muster-system/muster:9443")

    assert client.config("/mutate")["service"] == {
        "namespace": "muster-system",
        "name": "muster",
        "port": 9443,
        "path": "/mutate",
    }
    assert ClientConfig(authority=b"", service="a/b").config("/x")["service"]["port"] == 443


@pytest.mark.parametrize("text", ["muster", "a/", "/b", "a/b:http", "a/b:"])
def test_a_service_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FixError, match="is not a Service"):
        ClientConfig(authority=b"", service=text).config("/mutate")


def test_nowhere_to_call_is_refused() -> None:
    with pytest.raises(FixError, match="URL or a Service"):
        ClientConfig(authority=b"").config("/mutate")


def test_equal_namespace_selectors_share_a_webhook_entry() -> None:
    one = LabelSelector(requirements=(*VISION.requirements, *SPEECH.requirements))
    other = LabelSelector(requirements=(*SPEECH.requirements, *VISION.requirements))

    assert len(webhook_config_registration.validating(a_registration(one, other))["webhooks"]) == 8
    assert len(webhook_config_registration.mutating(a_registration(one, other))["webhooks"]) == 6
    both = replace(a_registration(one), policies=(other,), reading_pods=(other,), rewriting=(other,))
    for configuration in (webhook_config_registration.validating(both), webhook_config_registration.mutating(both)):
        written = [webhook["name"] for webhook in configuration["webhooks"]]
        assert len(set(written)) == len(written)


def test_job_reviews_fail_open_except_for_jobs_that_name_their_maker() -> None:
    webhooks = webhook_config_registration.mutating(a_registration(VISION))["webhooks"]
    named, queued = webhooks[:2]

    assert named["name"] == "named.jobs.muster.dev"
    assert named["failurePolicy"] == "Fail"
    assert [(rule["resources"], rule["operations"]) for rule in named["rules"]] == [(["jobs"], ["CREATE", "UPDATE"])]
    assert [condition["name"] for condition in named["matchConditions"]] == ["named"]
    assert queued["name"] == f"queued-{namespace_selectors.digest(VISION)}.jobs.muster.dev"
    assert queued["failurePolicy"] == "Ignore"
    assert [(rule["resources"], rule["operations"]) for rule in queued["rules"]] == [(["jobs"], ["CREATE"])]
    assert {"key": "team", "operator": "In", "values": ["vision"]} in queued["namespaceSelector"]["matchExpressions"]


def test_workloads_are_reviewed_only_in_namespaces_of_queues_that_hold_workloads() -> None:
    registration = replace(a_registration(VISION, SPEECH), holding=(SPEECH,), holding_all=(SPEECH,))

    for encode, path, more in (
        (webhook_config_registration.mutating, "/hold", []),
        (webhook_config_registration.validating, "/validate", ["not-as-held"]),
    ):
        webhooks = by_name(encode(registration))
        shown = {name: one for name, one in webhooks.items() if name.endswith(".workloads.muster.dev")}
        assert list(shown) == [f"held-{namespace_selectors.digest(SPEECH)}.workloads.muster.dev"]
        (one,) = shown.values()
        assert one["failurePolicy"] == "Fail"
        assert one["clientConfig"]["url"].endswith(path)
        asked = {(*rule["apiGroups"], *rule["resources"]) for rule in one["rules"]}
        assert {("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"), ("kubeflow.org", "mpijobs")} <= asked
        assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in one["rules"])
        assert [said["name"] for said in one["matchConditions"]] == ["not-by-muster", "resumed", "free", *more]


def test_where_queues_hold_some_workloads_new_ones_that_name_no_queue_are_open() -> None:
    registration = replace(a_registration(VISION, SPEECH), holding=(SPEECH,))
    digest = namespace_selectors.digest(SPEECH)

    for encode, more in (
        (webhook_config_registration.mutating, []),
        (webhook_config_registration.validating, ["not-as-held", "not-marked"]),
    ):
        shown = {
            name.partition(".")[0]: (one["failurePolicy"], [said["name"] for said in one["matchConditions"]])
            for name, one in by_name(encode(registration)).items()
            if name.endswith(".workloads.muster.dev")
        }
        always = ["not-by-muster", "resumed", "free", *more]
        assert shown == {
            f"held-{digest}": ("Fail", [*always, "not-new-names-none"]),
            f"open-{digest}": ("Ignore", [*always, "new-names-none"]),
        }


def test_a_workload_that_is_held_as_a_whole_is_shown_to_each_half_once() -> None:
    registration = replace(a_registration(VISION, SPEECH), holding=(SPEECH,))
    digest = namespace_selectors.digest(SPEECH)
    once = {f"{one}-{digest}" for one in ("queued", "named", "open")}

    for encode in (webhook_config_registration.mutating, webhook_config_registration.validating):
        for name, webhook in by_name(encode(registration)).items():
            short, plural, *_ = name.split(".")
            if plural in ("jobs", "podtemplates"):
                conditions = [said["name"] for said in webhook.get("matchConditions", ())]
                assert ("not-held" in conditions) is (short in once), name


def test_where_a_namespace_demands_a_queue_pods_that_may_take_devices_are_reviewed_and_no_others() -> None:
    webhooks = by_name(webhook_config_registration.validating(a_registration(VISION)))
    required = webhooks[REQUIRED]

    demanding = {"key": "muster.dev/require-queue", "operator": "In", "values": ["true"]}
    elsewhere = {"key": "team", "operator": "NotIn", "values": ["vision"]}
    assert required["namespaceSelector"]["matchExpressions"][:2] == [demanding, elsewhere]
    assert required["failurePolicy"] == "Fail"
    assert [(rule["resources"], rule["operations"]) for rule in required["rules"]] == [(["pods"], ["CREATE"])]
    assert [said["name"] for said in required["matchConditions"]] == ["no-mirror", "may-take-devices"]
    assert REQUIRED not in by_name(webhook_config_registration.mutating(a_registration(VISION)))
    assert REQUIRED not in by_name(webhook_config_registration.validating(a_registration(LabelSelector()))), "all are"


def test_workloads_that_name_a_queue_are_closed_like_pods_and_others_stay_open() -> None:
    registration = a_registration(VISION)
    mutating, validating = (
        {name: one for name, one in by_name(encode(registration)).items() if name.endswith(".podtemplates.muster.dev")}
        for encode in (webhook_config_registration.mutating, webhook_config_registration.validating)
    )
    digest = namespace_selectors.digest(VISION)
    named, queued, elsewhere = (
        f"{one}.podtemplates.muster.dev" for one in (f"named-{digest}", f"open-{digest}", "labelled")
    )

    assert {name: one["failurePolicy"] for name, one in mutating.items()} == {named: "Fail"}
    assert mutating[named]["clientConfig"]["url"].endswith("/hold")
    assert mutating[named]["reinvocationPolicy"] == "IfNeeded"
    assert {name: one["failurePolicy"] for name, one in validating.items()} == {
        named: "Fail",
        queued: "Ignore",
        elsewhere: "Ignore",
    }
    assert [said["name"] for said in validating[named]["matchConditions"]] == [
        "not-by-muster",
        "names-queue",
        "not-marked",
        "new-template",
    ]
    assert [said["name"] for said in validating[queued]["matchConditions"]] == [
        "not-by-muster",
        "names-none",
        "unowned",
        "not-plain",
        "not-marked",
        "new-template",
    ]
    assert validating[elsewhere]["objectSelector"] == {
        "matchExpressions": [{"key": "muster.dev/queue", "operator": "Exists"}]
    }
    for one in (*mutating.values(), *validating.values()):
        asked = {(*rule["apiGroups"], *rule["resources"]) for rule in one["rules"]}
        assert {("batch", "jobs"), ("apps", "deployments"), ("jobset.x-k8s.io", "jobsets")} <= asked
        assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in one["rules"])


def test_claims_are_reviewed_only_in_namespaces_of_a_queue_or_a_policy() -> None:
    registration = replace(a_registration(VISION), policies=(SPEECH,))

    changed, judged = (
        {
            name: webhook
            for name, webhook in by_name(encode(registration)).items()
            if name.endswith(".claims.muster.dev")
        }
        for encode in (webhook_config_registration.mutating, webhook_config_registration.validating)
    )

    speech, vision = (f"selected-{namespace_selectors.digest(one)}.claims.muster.dev" for one in (SPEECH, VISION))
    assert list(changed) == [speech]
    assert sorted(judged) == sorted([speech, vision])
    assert [rule["operations"] for rule in changed[speech]["rules"]] == [["CREATE", "UPDATE"]]
    assert [rule["operations"] for rule in judged[speech]["rules"]] == [["CREATE"]]
    spared = {
        name for name, one in judged.items() if "not-from-template" in [said["name"] for said in one["matchConditions"]]
    }
    assert spared == {vision}, "rules are asked about every claim"
    for webhook in (*changed.values(), *judged.values()):
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["rules"][0]["apiVersions"] == ["v1"]
        assert webhook["rules"][0]["resources"] == ["resourceclaims", "resourceclaimtemplates"]
        assert "not-of-kube-scheduler" in [condition["name"] for condition in webhook["matchConditions"]]


def test_pods_with_claims_are_reviewed_for_policy_rules_where_no_queue_has_them_reviewed() -> None:
    registration = replace(a_registration(VISION), policies=(VISION, SPEECH), reading_pods=(VISION, SPEECH))

    webhooks = by_name(webhook_config_registration.validating(registration))

    shown = [name for name in webhooks if name.startswith("selected-") and name.endswith(".pods.muster.dev")]
    assert shown == [f"selected-{namespace_selectors.digest(SPEECH)}.pods.muster.dev"]
    (name,) = shown
    assert webhooks[name]["failurePolicy"] == "Fail"
    assert webhooks[name]["matchConditions"][0]["expression"] == match_conditions.WITH_CLAIMS
    assert [rule["operations"] for rule in webhooks[name]["rules"]] == [["CREATE"]]
    expressions = webhooks[name]["namespaceSelector"]["matchExpressions"]
    assert {"key": "team", "operator": "NotIn", "values": ["vision"]} in expressions
    everywhere = replace(registration, selectors=(LabelSelector(),))
    assert name not in by_name(webhook_config_registration.validating(everywhere))


def test_pods_to_be_converted_are_reviewed_where_no_queue_has_them_reviewed() -> None:
    registration = replace(a_registration(VISION), rewriting=(VISION, SPEECH), resources=("a.example/x", "b.example/y"))

    webhooks = by_name(webhook_config_registration.mutating(registration))

    shown = [name for name in webhooks if name.startswith("selected-")]
    assert shown == [f"selected-{namespace_selectors.digest(SPEECH)}.pods.muster.dev"]
    webhook = webhooks[shown[0]]
    assert (webhook["failurePolicy"], webhook["reinvocationPolicy"]) == ("Fail", "IfNeeded")
    mirror, asking = webhook["matchConditions"]
    assert mirror["expression"] == match_conditions.NO_MIRROR
    assert asking["expression"].startswith("'muster.dev/claims' in object.metadata.?annotations.orValue({}) || ")
    assert '["a.example/x", "b.example/y"].exists(r, r in c.?resources.?limits' in asking["expression"]
    unconverted = by_name(webhook_config_registration.mutating(replace(registration, resources=())))[shown[0]]
    assert "resources" not in unconverted["matchConditions"][1]["expression"]
