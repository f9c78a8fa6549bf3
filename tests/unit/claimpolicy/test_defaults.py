"""What claims get when their author is silent."""

import json
from typing import Any

import pytest

from admission.claimpolicy import defaults as claimpolicy_defaults, match
from admission.claimpolicy.defaults import LAST_APPLIED, Requester
from tests.unit.claimpolicy.policies import (
    ASKER,
    a_claim,
    a_policy,
    a_template,
    alternatives,
    asked,
    complete,
    defaults,
    exactly,
)

SELECTOR = {"cel": {"expression": "device.driver == 'gpu.example.com'"}}
OTHER = {"cel": {"expression": "true"}}
TOLERATION = {"key": "example.com/draining", "operator": "Exists"}
CONFIG = {"opaque": {"driver": "gpu.example.com", "parameters": {"sharing": "none"}}}

GIVEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "an alias is replaced": (
        {"deviceClasses": ["gpu"], "deviceClassName": "gpu.example.com"},
        {},
        {"deviceClassName": "gpu.example.com"},
    ),
    "selectors are given": ({"selectors": [SELECTOR]}, {}, {"deviceClassName": "gpu", "selectors": [SELECTOR]}),
    "written selectors stay": (
        {"selectors": [SELECTOR]},
        {"selectors": [OTHER]},
        {"deviceClassName": "gpu", "selectors": [OTHER]},
    ),
    "tolerations are given": (
        {"tolerations": [TOLERATION]},
        {"tolerations": []},
        {"deviceClassName": "gpu", "tolerations": [TOLERATION]},
    ),
    "each capacity is given where it is missing": (
        {"capacity": {"requests": {"memory": "20Gi", "cores": "4"}}},
        {"capacity": {"requests": {"memory": "1Gi"}}},
        {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "1Gi", "cores": "4"}}},
    ),
    "capacity is given where there is none": (
        {"capacity": {"requests": {"memory": "20Gi"}}},
        {},
        {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "20Gi"}}},
    ),
    "a count is given where the object has none": (
        {"count": 4},
        {},
        {"deviceClassName": "gpu", "count": 4},
    ),
    "a 1 that may be the author's stays": (
        {"count": 4},
        {"allocationMode": "ExactCount", "count": 1},
        {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    ),
    "All has no count": (
        {"count": 4},
        {"allocationMode": "All"},
        {"deviceClassName": "gpu", "allocationMode": "All"},
    ),
    "another class gets nothing": (
        {"deviceClasses": ["nic"], "tolerations": [TOLERATION]},
        {},
        {"deviceClassName": "gpu"},
    ),
    "a condition that is true gives": (
        {"when": "claim.metadata.namespace == 'ml' && request.exactly.count == 1", "tolerations": [TOLERATION]},
        {},
        {"deviceClassName": "gpu", "tolerations": [TOLERATION]},
    ),
    "a condition that is false does not": (
        {"when": "user.username == 'bob'", "tolerations": [TOLERATION]},
        {},
        {"deviceClassName": "gpu"},
    ),
    "a condition that reads the pod is not asked where there is none": (
        {"when": "pod == null", "tolerations": [TOLERATION]},
        {},
        {"deviceClassName": "gpu"},
    ),
}


@pytest.mark.parametrize(("entry", "written", "wanted"), GIVEN.values(), ids=GIVEN)
def test_a_request_gets_the_default_of_a_policy_entry(
    entry: dict[str, Any], written: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert asked(a_claim(exactly(**written)), defaults(entry)) == wanted


def test_every_alternative_is_given_its_own() -> None:
    obj = a_claim(alternatives({"name": "a", "deviceClassName": "gpu"}, {"name": "b", "deviceClassName": "big"}))

    done = complete(obj, defaults({"deviceClasses": ["big"], "tolerations": [TOLERATION]}))

    assert [step["path"] for step in done.patch] == ["/spec/devices/requests/0/firstAvailable/1/tolerations"]


def test_a_request_of_v1beta1_is_flat() -> None:
    obj = a_claim({"name": "gpu", "deviceClassName": "gpu"})

    done = complete(obj, defaults({"deviceClasses": ["gpu"], "deviceClassName": "gpu.example.com", "count": 2}))

    assert done.obj["spec"]["devices"]["requests"] == [
        {"name": "gpu", "deviceClassName": "gpu.example.com", "count": 2}
    ]


def test_a_template_gets_what_its_claims_ask_for_and_labels_of_its_own() -> None:
    policy = defaults({"labels": {"cost-centre": "r-17"}, "tolerations": [TOLERATION]})

    done = complete(a_template(exactly()), policy)

    assert done.obj["metadata"]["labels"] == {"cost-centre": "r-17"}
    assert done.obj["spec"]["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] == [TOLERATION]


def test_the_first_entry_that_matches_wins_for_each_field() -> None:
    first = a_policy("first", defaults=[{"deviceClasses": ["nic"], "count": 8}, {"count": 2}])
    second = a_policy("second", defaults=[{"count": 3, "tolerations": [TOLERATION]}])

    assert asked(a_claim(exactly()), first, second) == {
        "deviceClassName": "gpu",
        "count": 2,
        "tolerations": [TOLERATION],
    }


def test_a_device_class_behind_an_alias_gets_the_defaults_of_alias_and_class() -> None:
    policy = defaults(
        {"deviceClasses": ["gpu"], "deviceClassName": "gpu.example.com", "selectors": [SELECTOR]},
        {"deviceClasses": ["gpu.example.com"], "tolerations": [TOLERATION]},
    )

    assert asked(a_claim(exactly()), policy) == {
        "deviceClassName": "gpu.example.com",
        "selectors": [SELECTOR],
        "tolerations": [TOLERATION],
    }


def test_an_alias_of_an_alias_stands_for_the_last_class() -> None:
    policy = defaults(
        {"deviceClasses": ["gpu"], "deviceClassName": "h100"},
        {"deviceClasses": ["h100"], "deviceClassName": "h100.example.com"},
    )

    assert asked(a_claim(exactly()), policy) == {"deviceClassName": "h100.example.com"}


def test_aliases_that_lead_in_a_circle_stand_for_nothing() -> None:
    policy = defaults(
        {"deviceClasses": ["a"], "deviceClassName": "b"}, {"deviceClasses": ["b"], "deviceClassName": "a"}
    )

    assert complete(a_claim(exactly(device_class="a")), policy).patch == ()


def test_a_default_label_may_make_the_condition_of_another_default_true() -> None:
    policy = defaults(
        {"when": "claim.metadata.?labels[?'tier'].orValue('') == 'short'", "tolerations": [TOLERATION]},
        {"labels": {"tier": "short"}},
    )

    done = complete(a_claim(exactly()), policy)

    assert done.obj["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] == [TOLERATION]


def test_labels_are_added_beside_those_that_are_there() -> None:
    policy = defaults({"labels": {"cost-centre": "r-17", "example.com/tier": "short"}})

    done = complete(a_claim(exactly(), labels={"cost-centre": "mine"}), policy)

    assert done.obj["metadata"]["labels"] == {"cost-centre": "mine", "example.com/tier": "short"}
    assert [step["path"] for step in done.patch] == ["/metadata/labels/example.com~1tier"]


def test_labels_for_a_device_class_go_to_claims_for_this_class_only() -> None:
    policy = defaults({"deviceClasses": ["nic"], "labels": {"net": "yes"}})

    assert complete(a_claim(exactly()), policy).patch == ()
    assert complete(a_claim(exactly(device_class="nic")), policy).obj["metadata"]["labels"] == {"net": "yes"}


def test_a_default_configuration_that_does_not_match_leaves_the_driver_to_the_next_entry() -> None:
    policy = defaults({"deviceClasses": ["nic"], "config": [CONFIG]}, {"config": [CONFIG]})

    assert complete(a_claim(exactly()), policy).obj["spec"]["devices"]["config"] == [CONFIG]


def test_a_driver_is_configured_once_and_for_the_requests_that_match() -> None:
    policy = defaults({"deviceClasses": ["gpu"], "config": [CONFIG]})

    both = complete(a_claim(exactly(), exactly("nic", "nic")), policy).obj["spec"]["devices"]
    alone = complete(a_claim(exactly()), policy).obj["spec"]["devices"]
    own = complete(a_claim(exactly(), config=[{"opaque": {"driver": "gpu.example.com", "parameters": {}}}]), policy)

    assert both["config"] == [{"requests": ["gpu"], **CONFIG}]
    assert alone["config"] == [CONFIG]
    assert own.patch == ()


def test_a_default_entry_configures_the_drivers_that_the_claim_does_not_configure() -> None:
    other = {"opaque": {"driver": "nic.example.com", "parameters": {}}}
    own = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
    policy = defaults({"config": [CONFIG, other]})

    assert complete(a_claim(exactly(), config=[own]), policy).obj["spec"]["devices"]["config"] == [own, other]


def test_a_count_of_one_is_kept_only_where_last_applied_shows_that_the_author_wrote_the_count() -> None:
    """The API server fills in 1 before it asks anybody."""
    filled = exactly(allocationMode="ExactCount", count=1)
    policy = defaults({"count": 4})

    for written, wanted in ((exactly(), 4), (exactly(count=1), 1)):
        noted = {LAST_APPLIED: json.dumps(a_claim(written))}
        assert asked(a_claim(filled, annotations=noted), policy)["count"] == wanted
    assert asked(a_claim(filled, annotations={LAST_APPLIED: "no JSON"}), policy)["count"] == 1


def test_a_condition_that_fails_gives_nothing_and_warns() -> None:
    policy = defaults({"when": "claim.metadata.labels['x'] == 'y'", "count": 4}, {"tolerations": [TOLERATION]})

    done = complete(a_claim(exactly()), policy)

    assert done.obj["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu",
        "tolerations": [TOLERATION],
    }
    (warning,) = done.warnings
    assert warning == (
        "muster: ClaimPolicy p: request gpu gets nothing from spec.defaults[0], whose condition could not be"
        " evaluated: no such key: labels; the policy's author has to guard it"
    )


def test_default_conditions_share_a_cost_budget() -> None:
    dear = "lists.range(500).all(x, lists.range(500).all(y, x + y >= 0))"

    done = complete(a_claim(exactly()), defaults({"when": dear, "count": 4}))

    assert done.patch == ()
    assert "limit exceeded" in done.warnings[0]


def test_defaults_may_depend_on_the_queue_and_the_namespace() -> None:
    policy = defaults(
        {"when": "queue == 'research' && namespaceObject.metadata.labels.team == 'vision'", "labels": {"a": "b"}}
    )
    namespace = {"metadata": {"name": "ml", "labels": {"team": "vision"}}}

    assert complete(a_claim(exactly()), policy, asker=Requester(namespace=namespace, queue="research")).patch
    assert not complete(a_claim(exactly()), policy, asker=Requester(namespace=namespace)).patch


def test_a_condition_on_a_template_sees_the_namespace_and_the_labels_of_its_claims() -> None:
    policy = defaults(
        {"when": "claim.metadata.namespace == 'ml' && claim.metadata.labels.tier == 'short'", "labels": {"a": "b"}}
    )
    template = a_template(exactly())
    labelled = {**template, "spec": {**template["spec"], "metadata": {"labels": {"tier": "short"}}}}

    assert complete(labelled, policy).patch
    assert not complete(template, policy).patch


@pytest.mark.parametrize("missing", [{"spec": None}, {"metadata": None}], ids=str)
def test_a_template_without_metadata_or_spec_is_left_to_the_api_server(missing: dict[str, Any]) -> None:
    policy = defaults({"when": "claim.metadata.namespace == 'ml'", "tolerations": [TOLERATION]})

    assert complete({**a_template(exactly()), **missing}, policy).patch == ()


def test_a_policy_may_name_its_values() -> None:
    policy = a_policy(
        variables=[{"name": "short", "expression": "'short' in claim.metadata.?labels.orValue({})"}],
        defaults=[{"when": "variables.short", "count": 2}],
    )

    assert asked(a_claim(exactly(), labels={"short": ""}), policy)["count"] == 2
    assert "count" not in asked(a_claim(exactly()), policy)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"devices": None},
        {"devices": {"requests": None}},
        {"devices": {"requests": [None, 1, {"name": None}]}},
        {"devices": {"requests": "x"}},
        {"devices": {"requests": [{"name": "r", "exactly": 1}, {"firstAvailable": [None]}]}},
    ],
    ids=str,
)
def test_an_object_that_is_no_claim_is_left_to_the_api_server(spec: dict[str, Any]) -> None:
    policy = defaults({"deviceClasses": ["gpu"], "selectors": [SELECTOR], "config": [CONFIG], "when": "true"})

    assert complete({**a_claim(), "spec": spec}, policy).patch == ()


FLAWS: dict[str, tuple[dict[str, Any], str]] = {
    "a condition that is no CEL": (
        {"when": "request.", "count": 1},
        "spec.defaults[0].when: is not CEL that Muster takes: 1:9: Syntax error: the expression ends too early",
    ),
    "a condition that is no bool": ({"when": "1", "count": 1}, "spec.defaults[0].when: is not CEL"),
    "a condition of an unknown name": (
        {"when": "device.driver == 'x'", "count": 1},
        "there are request, claim, pod, namespaceObject, user, queue, variables",
    ),
    "a selector that is no CEL": (
        {"selectors": [{"cel": {"expression": "device.x"}}]},
        "spec.defaults[0].selectors[0].cel.expression: compile error: 1:7: undefined field",
    ),
    "a label that is none": ({"labels": {"a b": "c"}}, "spec.defaults[0].labels[a b]: 'a b' is not a label's key"),
    "a value that is none": ({"labels": {"a": "c d"}}, "spec.defaults[0].labels[a]: 'c d' is not a label's value"),
    "a configuration of nobody": ({"config": [{}]}, "spec.defaults[0].config[0].opaque.driver: is required"),
    "a configuration by names": (
        {"config": [{"requests": ["gpu"], **CONFIG}]},
        "spec.defaults[0].config[0].requests: must be left out",
    ),
}


@pytest.mark.parametrize(("entry", "message"), FLAWS.values(), ids=FLAWS)
def test_an_invalid_default_of_a_policy_is_a_problem(entry: dict[str, Any], message: str) -> None:
    problems = match.compile_policy(defaults(entry)).problems

    assert message in "\n".join(map(str, problems))


def test_a_flawed_default_gives_nothing_warns_and_leaves_the_others() -> None:
    spec: list[dict[str, Any]] = [
        {"deviceClasses": ["gpu"], "when": "request.", "count": 4},
        {"deviceClasses": ["nic"], "when": "request.", "count": 2},
        {"labels": {"a b": "c"}},
        {"labels": {"team": "a"}},
    ]
    entries = match.compile_policy(defaults(*spec)).defaults

    found = claimpolicy_defaults.complete(entries, a_claim(exactly()), ASKER, template=False)

    assert found.obj["metadata"]["labels"] == {"team": "a"}
    assert "count" not in found.obj["spec"]["devices"]["requests"][0]["exactly"]
    assert [warning.partition(": spec")[2].partition(":")[0] for warning in found.warnings] == [
        ".defaults[0].when",
        ".defaults[2].labels[a b]",
    ]
    assert found.warnings[0].startswith("muster: ClaimPolicy p: request gpu gets nothing from an invalid entry: spec")


def test_a_condition_that_fits_no_type_is_doubted() -> None:
    compiled = match.compile_policy(defaults({"when": "request.exactly.cuont == 1", "count": 2}))

    assert compiled.problems == ()
    assert list(map(str, compiled.uncertain)) == ["spec.defaults[0].when: looks wrong: 1:16: undefined field 'cuont'"]
