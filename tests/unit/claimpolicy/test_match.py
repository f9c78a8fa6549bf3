"""Which policies apply, in which order, and what is compiled again."""

from dataclasses import replace

import pytest

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.muster import claim_policies
from admission.api.muster.claim_policies import ClaimPolicy
from admission.claimpolicy import match
from admission.claimpolicy.match import Policies
from admission.errors import MalformedObjectError, RetryError
from tests.unit.claimpolicy.policies import a_policy

NAMESPACES = {"ml": Namespace(meta=Meta(name="ml"), labels={"team": "vision"})}
RULES = [{"cel": "true", "message": "never said"}]


def chosen(*policies: ClaimPolicy, namespace: str = "ml", queue: str = "") -> list[str]:
    found = Policies.build({policy.name: policy for policy in policies}, NAMESPACES)
    return [policy.name for policy in found.choose(namespace, queue).policies]


def test_the_lowest_order_comes_first_and_names_decide_between_equals() -> None:
    assert chosen(a_policy("b"), a_policy("c", order=-1), a_policy("a"), a_policy("z", order=5)) == ["c", "a", "b", "z"]


def test_a_policy_chooses_namespaces_by_label() -> None:
    vision = a_policy("vision", namespaceSelector={"matchLabels": {"team": "vision"}})
    speech = a_policy("speech", namespaceSelector={"matchLabels": {"team": "speech"}})

    assert chosen(vision, speech) == ["vision"]


def test_a_policy_for_queues_does_not_apply_to_a_claim_without_a_queue() -> None:
    policy = a_policy("p", queues=["q"])

    assert chosen(policy) == []
    assert chosen(policy, queue="other") == []
    assert chosen(policy, queue="q") == ["p"]


def test_a_claim_policy_with_a_flaw_is_applied_but_for_that() -> None:
    broken = a_policy("broken", rules=[*RULES, {"cel": "x.", "message": "no CEL"}], defaults=[{"labels": {"a": "b"}}])

    found = Policies.build({"broken": broken}, NAMESPACES)

    (rulebook,) = found.choose("ml", "").rules
    assert [bool(rule.problem) for rule in rulebook.rules] == [False, True]
    assert [entry.default.labels for entry in found.choose("ml", "").defaults] == [{"a": "b"}]
    assert [problem.field for problem in found.compiled["broken"].problems] == ["spec.rules[1].cel"]


def test_an_entry_that_cannot_be_read_is_a_flaw_of_a_stored_policy() -> None:
    """As when a later version of Muster has written it."""
    rules = [*RULES, {"cel": "true", "message": "m", "action": "Vanish"}, {"message": "m", "failurePolicy": "Ignore"}]
    spec = {"rules": rules, "defaults": [{"labels": {"a": "b"}}, {}], "variables": [{"name": "x"}]}
    obj = {"metadata": {"name": "p"}, "spec": spec}

    compiled = match.compile_policy(claim_policies.decode_stored(obj))

    assert [problem.field for problem in compiled.problems] == [
        "spec.defaults[1]",
        "spec.variables[0].expression",
        "spec.rules[1].action",
        "spec.rules[2].cel",
    ]
    assert [(rule.index, bool(rule.problem)) for rule in compiled.rules.rules] == [(0, False), (1, True)]
    assert [bool(entry.problem) for entry in compiled.defaults] == [False, True]
    with pytest.raises(MalformedObjectError, match="'Vanish' is not one of Deny, Warn, Audit"):
        claim_policies.decode(obj)
    with pytest.raises(MalformedObjectError, match=r"spec\.order"):
        claim_policies.decode_stored({"metadata": {"name": "p"}, "spec": {**spec, "order": "first"}})


def test_a_policy_that_is_being_deleted_is_not_applied() -> None:
    policy = a_policy("p")

    assert chosen(replace(policy, meta=replace(policy.meta, deleted=policy.meta.created))) == []


def test_nothing_is_chosen_for_a_namespace_that_was_not_seen_yet() -> None:
    with pytest.raises(RetryError, match="namespace new has not been seen yet"):
        chosen(a_policy("p"), namespace="new")

    assert chosen(namespace="new") == []


def test_only_what_changed_is_compiled_again() -> None:
    one, two = a_policy("one", rules=RULES), a_policy("two", rules=RULES)
    before = Policies.build({"one": one, "two": two}, NAMESPACES)

    after = Policies.build({"one": one, "two": a_policy("two", order=1, rules=RULES)}, NAMESPACES, before)

    assert after.compiled["one"] is before.compiled["one"]
    assert after.compiled["two"] is not before.compiled["two"]
    assert after.choose("ml", "") is after.choose("ml", "")
