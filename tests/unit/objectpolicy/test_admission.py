from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.api.muster import gangs
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.api.values.reasons import DenyReason
from admission.errors import RetryError
from admission.objectpolicy import in_use
from admission.objectpolicy.findings import ObjectFinding
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from tests.unit.webhook.cases import RULES, MemoryView, World

CONFIG = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
SELECTED = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


def eight(**limits: str) -> dict[str, Any]:
    return {"quotas": [{"meter": "gpus", "nominal": "8", **limits}]}


def a_cluster() -> World:
    """Return a tree: root over team-a, which namespace ml may enter, and team-b."""
    cluster = World().queue("root", team=None, quotas=[{"meter": "gpus", "nominal": "8"}])
    return cluster.queue("team-a", parent="root").queue("team-b", team="b", parent="root", **eight())


def a_gang(name: str, queue: str, phase: str = "Running", **charges: str) -> gangs.Gang:
    return gangs.decode(
        {
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"queue": queue, "size": 1},
            "status": {"phase": phase, "charges": charges},
        }
    )


def known(cluster: World | None = None, *live: gangs.Gang) -> Snapshot:
    snapshot = (cluster or a_cluster()).build()
    return Snapshot(
        namespaces=snapshot.namespaces,
        queues=snapshot.queues,
        meters=snapshot.meters,
        classes=snapshot.classes,
        gangs={gang.meta.key: gang for gang in live},
        malformed=snapshot.malformed,
    )


def review(operation: str, resource: str, snapshot: Snapshot, **fields: Any) -> Verdict:
    asked = Review(
        uid="u-1",
        group=names.GROUP,
        version=names.VERSION,
        resource=resource,
        kind="",
        operation=operation,
        username="alice",
        **fields,
    )
    return reviewer.validate(asked, MemoryView(snapshot), rules=RULES, caches=ReviewCaches())


def an_object(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def created(resource: str, obj: dict[str, Any], snapshot: Snapshot | None = None, **fields: Any) -> Verdict:
    return review("CREATE", resource, snapshot or known(), obj=obj, **fields)


def changed(resource: str, old: dict[str, Any], new: dict[str, Any], snapshot: Snapshot) -> Verdict:
    return review("UPDATE", resource, snapshot, obj=new, old=old)


def removed(resource: str, old: dict[str, Any], snapshot: Snapshot) -> Verdict:
    return review("DELETE", resource, snapshot, old=old)


def warned(verdict: Verdict) -> str:
    """Return the only warning of a verdict that allows."""
    assert verdict.denial is None, verdict.denial
    (warning,) = verdict.warnings
    return warning


def denied(verdict: Verdict, reason: DenyReason = DenyReason.MALFORMED_REQUEST) -> str:
    assert verdict.denial is not None
    assert verdict.denial.reason is reason
    return verdict.denial.message


# Queues.


def test_a_queue_that_is_in_order_is_let_through_without_a_word() -> None:
    assert created("queues", an_object("new", parent="root", **SELECTED, **eight(borrowingLimit="4"))) is ALLOWED


def test_a_queue_that_closes_a_circle_is_refused_with_the_circle() -> None:
    moved = changed("queues", an_object("root"), an_object("root", parent="team-a"), known())

    assert "root → team-a → root" in denied(moved)


def test_a_queue_that_stands_in_a_circle_may_be_changed_otherwise() -> None:
    cluster = World().queue("a", team=None, parent="b").queue("b", team=None, parent="a")
    old, new = an_object("a", parent="b"), an_object("a", parent="b", stopPolicy="Hold")

    assert "a → b → a" in warned(changed("queues", old, new, known(cluster)))
    assert "a → b → a" in denied(created("queues", new, known(cluster)))


KIND = {"name": "a", "deviceClasses": ["gpu.example.com"], "selector": "device.driver == 'a'"}
PREFERENCES = {
    "a selector that does not compile": (
        [{**KIND, "selector": "device.driver ="}],
        {},
        "is no selector: compile error",
    ),
    "a selector that is no condition": ([{**KIND, "selector": "1"}], {}, "is no selector: compile error"),
    "a version as text": ([{**KIND, "selector": "device.attributes['a'].v == '1.2.3'"}], {}, "selector: column"),
    "a kind whose devices an earlier one has": ([KIND, {**KIND, "name": "b"}], {}, "has the same devices as kind a"),
    "a class that there is not": ([{**KIND, "deviceClasses": ["gpu.exmaple.com"]}], {}, "did you mean gpu.example.com"),
    "placement Count": ([KIND], {"placement": "Count"}, "does not count with placement: Count"),
}


@pytest.mark.parametrize(("kinds", "more", "message"), PREFERENCES.values(), ids=PREFERENCES)
def test_preferences_that_cannot_work_are_refused_and_doubtful_ones_warned_of(
    kinds: Any, more: dict[str, Any], message: str
) -> None:
    cluster = known(a_cluster().offered("gpu.example.com", "example.com/gpu"))
    verdict = created("queues", an_object("new", **SELECTED, **eight(), preferences={"kinds": kinds}, **more), cluster)

    said = denied(verdict) if message.startswith("is no selector") else warned(verdict)
    assert "spec.preferences" in said
    assert message in said


def chain(length: int, *, top: str | None = None) -> World:
    cluster = World()
    for at in range(length):
        parent = f"q{at - 1}" if at else top
        cluster.queue(f"q{at}", team=None, **({"parent": parent} if parent else {}))
    return cluster


def test_a_queue_too_deep_is_refused() -> None:
    assert "17 levels deep" in denied(created("queues", an_object("leaf", parent="q15"), known(chain(16))))
    assert created("queues", an_object("leaf", parent="q14"), known(chain(16))) is ALLOWED


def test_queues_that_a_changed_parent_makes_too_deep_are_named() -> None:
    old, new = an_object("q0"), an_object("q0", parent="top")

    said = warned(changed("queues", old, new, known(chain(16).queue("top", team=None))))

    assert "queues q15 become too deep" in said


def test_a_parent_may_come_later() -> None:
    assert "spec.parent: parent none of queue q does not exist" in warned(
        created("queues", an_object("q", parent="none"))
    )
    said = warned(created("queues", an_object("q", parent="broken"), known(a_cluster().broken_queue("broken"))))
    assert "queue broken exists but cannot be read: " in said


def test_a_meter_may_come_later() -> None:
    spec = {
        "quotas": [{"meter": "gpus", "nominal": 1}, {"meter": "none", "nominal": 1}],
        "budgets": [{"meter": "neither", "hours": 1, "period": "Day"}],
    }

    verdict = created("queues", an_object("q", **spec))

    assert [warning.split(";")[0] for warning in verdict.warnings] == [
        "muster: spec.quotas[1].meter: there is no Meter none (there are: gpus)",
        "muster: spec.budgets[0].meter: there is no Meter neither (there are: gpus)",
    ]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (eight(borrowingLimit="4"), "spec.quotas[0].borrowingLimit"),
        (eight(lendingLimit="4"), "spec.quotas[0].lendingLimit"),
        ({**SELECTED, **eight(lendingLimit="9"), "parent": "root"}, "spec.quotas[0].lendingLimit"),
    ],
)
def test_ineffective_limits_of_a_queue_are_warned_of(spec: dict[str, Any], field: str) -> None:
    assert f"{field}: has no effect: " in warned(created("queues", an_object("q", **spec)))


def test_all_that_is_lent_may_be_said_in_full_and_by_a_parent_of_more() -> None:
    assert created("queues", an_object("q", parent="root", **SELECTED, **eight(lendingLimit="8"))) is ALLOWED
    assert created("queues", an_object("q", parent="root", **eight(lendingLimit="9"))) is ALLOWED


def test_a_second_queue_with_an_alias_in_a_namespace_is_warned_of() -> None:
    cluster = World().queue("one", aliases=["user-queue", "batch"]).namespace("nlp", team="a")

    said = warned(created("queues", an_object("two", aliases=["user-queue", "more"], **SELECTED), known(cluster)))

    assert "queue one is called user-queue in namespaces ml, nlp as well; pods there that name it are refused" in said


def test_a_second_default_queue_of_a_namespace_is_warned_of() -> None:
    cluster = World().queue("one", default=True).namespace("nlp", team="a")

    said = warned(created("queues", an_object("two", default=True, **SELECTED), known(cluster)))

    assert "queue one is the default of namespaces ml, nlp as well" in said
    assert (
        created("queues", an_object("two", default=True, namespaceSelector={"matchLabels": {"team": "c"}})) is ALLOWED
    )


UNRELATED: dict[str, World] = {
    "itself": World().queue("two", aliases=["user-queue"], default=True),
    "one of another name that is no default": World().queue("one", aliases=["batch"]),
    "one of other namespaces": World().queue("one", team="c", aliases=["user-queue"], default=True),
    "one of no namespaces": World().queue("one", team=None, aliases=["user-queue"], default=True),
    "one that is being deleted": World().queue("one", aliases=["user-queue"], default=True).deleted("one"),
}


@pytest.mark.parametrize("cluster", UNRELATED.values(), ids=UNRELATED)
def test_a_queue_of_its_own_name_and_namespaces_is_let_through_beside(cluster: World) -> None:
    old = an_object("two", aliases=["user-queue"], default=True, **SELECTED)
    new = an_object("two", aliases=["user-queue"], default=True, stopPolicy="Hold", **SELECTED)

    assert changed("queues", old, new, known(cluster)) is ALLOWED
    assert created("queues", new, known(cluster)) is ALLOWED


@pytest.mark.parametrize(
    "spec",
    [{"aliases": ["user-queue"], "default": True}, SELECTED],
    ids=["of no namespaces", "of neither aliases nor a default"],
)
def test_a_queue_without_a_rival_for_its_aliases_has_no_warning(spec: dict[str, Any]) -> None:
    cluster = World().queue("one", aliases=["user-queue"], default=True)

    assert created("queues", an_object("two", **spec), known(cluster)) is ALLOWED


def test_a_lowered_quota_warns_of_queues_that_will_be_over_quota() -> None:
    holder = a_gang("train", "team-b", gpus="12")
    old, new = an_object("team-b", parent="root", **eight()), an_object("team-b", parent="root")

    said = warned(changed("queues", old, new, known(None, holder)))

    assert (
        "gpus: more is in use than can be had from now on: queue root uses 12 of at most 8, team-b uses 12 of" in said
    )


def test_a_lowered_parent_quota_warns_of_queues_below_that_will_be_over_quota() -> None:
    holder = a_gang("train", "team-a", gpus="12")
    old, new = an_object("root", **eight()), an_object("root")

    assert "team-a uses 12 of at most 8" in warned(changed("queues", old, new, known(None, holder)))


def test_a_lowered_quota_says_what_is_borrowed_from_now_on() -> None:
    old = an_object("team-b", parent="root", **eight())
    new = an_object("team-b", parent="root", quotas=[{"meter": "gpus", "nominal": "2"}])

    more, just_as_much = (
        changed("queues", old, new, known(None, a_gang("train", "team-b", gpus=used))) for used in ("8", "2")
    )

    assert "8 gpus are in use; all above 2 is borrowed from now on" in warned(more)
    assert just_as_much == ALLOWED


def test_a_queue_that_was_over_quota_before_is_not_warned_of() -> None:
    holder = a_gang("train", "team-b", gpus="99")
    old = an_object("team-b", parent="root", **eight())
    new = an_object("team-b", parent="root", stopPolicy="Hold", **eight())

    assert changed("queues", old, new, known(None, holder)) is ALLOWED


def test_gangs_whose_namespace_may_not_enter_any_more_are_counted() -> None:
    old, new = an_object("team-a", parent="root", **SELECTED), an_object("team-a", parent="root")

    said = warned(changed("queues", old, new, known(None, a_gang("train", "team-a", "Pending"))))

    assert "a gang of queue team-a keeps what it has until it ends, and starts no pods" in said


def test_deleting_a_queue_warns_of_its_gangs_and_of_queues_below() -> None:
    live = [a_gang("train", "team-a", gpus="8"), a_gang("next", "team-b", "Pending"), a_gang("old", "root", "Finished")]

    verdict = removed("queues", an_object("root"), known(None, *live))

    assert verdict.denial is None
    holders, waiting, below = verdict.warnings
    assert "goes when what was let in here or below gave the devices back (a gang of queue team-a)" in holders
    assert "what waits here or below (a gang of queue team-b) will not start" in waiting
    assert "2 queues below (team-a, team-b) become inactive" in below
    assert removed("queues", an_object("team-a"), known()) is ALLOWED


def test_a_queue_that_cannot_be_read_is_refused_and_may_be_deleted() -> None:
    broken = an_object("q", budgets=[{"meter": "gpus", "hours": 1, "period": "Day", "timeZone": "Europe/Berlino"}])

    assert "did you mean Europe/Berlin" in denied(created("queues", broken))
    assert removed("queues", broken, known()) is ALLOWED
    assert changed("queues", broken, an_object("q"), known()) is ALLOWED


def test_an_invalid_queue_may_change_its_labels_and_may_be_deleted() -> None:
    broken = an_object("q", parent="q", placement="Nowhere")
    labelled = {**broken, "metadata": {"name": "q", "labels": {"a": "b"}}}
    going = {
        **an_object("q", placement="Somewhere"),
        "metadata": {"name": "q", "deletionTimestamp": "2026-11-22T07:00:00Z"},
    }

    assert changed("queues", broken, labelled, known()) is ALLOWED
    assert changed("queues", broken, going, known()) is ALLOWED


# Meters.


def a_meter(selector: str | None = None, device_class: str = "gpu.example.com", **source: Any) -> dict[str, Any]:
    said = {
        "deviceClasses": [device_class],
        **(source or {"count": {}}),
        **({"selector": selector} if selector else {}),
    }
    return an_object("gpus", sources=[said])


def test_a_meter_that_cannot_count_is_refused_with_the_place() -> None:
    said = denied(created("meters", a_meter(expression={"cel": "device.foo"})))

    assert said.startswith("spec.sources[0].expression.cel: is no price: column 7: undefined field")


def test_a_trap_in_a_meter_expression_is_warned_of_with_its_place() -> None:
    said = warned(created("meters", a_meter("device.attributes['gpu.example.com'].driver == '1.2.3'")))

    assert said.startswith("muster: spec.sources[0].selector: column ")


def test_queues_without_a_quota_of_a_meter_that_newly_counts_cpu_are_named() -> None:
    cluster = a_cluster().queue("team-c", team="c", quotas=[{"meter": "cores", "nominal": "8"}])
    cores, memory = an_object("cores", resources=[{"name": "cpu"}]), an_object("cores", resources=[{"name": "memory"}])

    said = warned(created("meters", cores, known(cluster)))
    assert "queues team-a, team-b have no quota of it" in said
    assert "pods that request cpu are refused" in said
    cluster.queue("team-d", team="d")
    assert "queues team-a, team-b, team-d have no" in warned(created("meters", cores, known(cluster)))
    assert "request memory" in warned(changed("meters", cores, memory, known(cluster)))
    assert not changed("meters", cores, cores, known(cluster)).warnings
    assert not created("meters", an_object("cores", resources=[{"name": "x.io/gpu"}]), known(cluster)).warnings


def test_a_class_may_come_later() -> None:
    cluster = a_cluster().offered("gpu.example.com", "example.com/gpu")

    assert "no DeviceClass is called other yet" in warned(created("meters", a_meter(None, "other"), known(cluster)))


def test_a_meter_that_is_changed_or_deleted_says_what_is_charged() -> None:
    snapshot = known(None, a_gang("train", "team-b", gpus="6"), a_gang("tune", "team-b", gpus="2"))

    said = warned(changed("meters", a_meter(), a_meter(expression={"cel": "2"}), snapshot))
    gone = removed("meters", a_meter(), snapshot)

    assert "8 gpus stay charged as they are to 2 gangs of queue team-b; only what" in said
    assert gone.denial is None
    charged, named = gone.warnings
    assert "8 gpus stay charged to 2 gangs of queue team-b until their claims go" in charged
    assert "queues root, team-b name it" in named


# ClaimPolicies.


def a_policy(**spec: Any) -> dict[str, Any]:
    return an_object("p", **spec)


def requests(expression: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "a", "selectors": [{"cel": {"expression": expression}}]}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"rules": [{"cel": "object.x", "message": "m"}]}, "spec.rules[0].cel: "),
        ({"defaults": [{"when": "1 +", "count": 1}]}, "spec.defaults[0].when: "),
        ({"defaults": [{"count": 33}]}, "spec.defaults[0].count: is 33"),
        (
            {"templates": [{"name": "one", "spec": requests("device.foo")}]},
            "spec.templates[0].spec.devices.requests[0].exactly.selectors[0].cel.expression: is not CEL",
        ),
        ({"templates": [{"name": "One", "spec": requests("true")}]}, "spec.templates[0].name: "),
    ],
)
def test_a_policy_that_could_not_be_applied_is_refused(spec: dict[str, Any], said: str) -> None:
    assert said in denied(created("claimpolicies", a_policy(**spec)))


def test_a_policy_is_warned_of_what_may_be_meant() -> None:
    doubtful = {"cel": "!has(request.exactly.cuont)", "message": "m"}
    trap = {"cel": {"expression": "device.attributes['x'].driver == '1.2.3'"}}

    assert "spec.rules[0].cel: " in warned(created("claimpolicies", a_policy(rules=[doubtful])))
    assert "spec.queues[0]: there is no queue none" in warned(created("claimpolicies", a_policy(queues=["none"])))
    assert "spec.defaults[0].selectors[0].cel.expression: column" in warned(
        created("claimpolicies", a_policy(defaults=[{"selectors": [trap]}]))
    )


def test_a_policy_is_warned_of_fields_that_would_be_dropped_from_what_it_keeps() -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "counts": 2}}
    template = {"name": "one", "spec": {"devices": {"requests": [request]}}}
    default = {"tolerations": [{"operater": "Exists"}], "config": [{"request": ["gpu"], **CONFIG}]}

    verdict = created("claimpolicies", a_policy(templates=[template], defaults=[default]))

    at = "muster: spec.templates[0].spec.devices.requests[0].exactly"
    assert verdict.denial is None
    assert verdict.warnings == (
        f"{at}.counts: is an unknown field; did you mean count?",
        "muster: spec.defaults[0].tolerations[0].operater: is an unknown field; did you mean operator?",
        "muster: spec.defaults[0].config[0].request: is an unknown field; did you mean requests?",
    )


def test_a_policy_that_is_in_order_is_let_through() -> None:
    rule = {"cel": "request.exactly.count <= 8", "message": "m"}

    assert created("claimpolicies", a_policy(rules=[rule], defaults=[{"count": 2}])) is ALLOWED
    assert removed("claimpolicies", a_policy(rules=[rule]), known()) is ALLOWED


# Gangs.


def test_a_gang_is_written_for_a_queue_that_its_namespace_may_enter() -> None:
    def written(queue: str, name: str = "train") -> Verdict:
        return created("gangs", an_object(name, queue=queue, size=2), namespace="ml")

    assert written("team-a") is ALLOWED
    assert "team=b; namespace ml has " in denied(written("team-b"), DenyReason.QUEUE_NOT_OPEN)
    assert "it is a parent" in denied(written("root"), DenyReason.QUEUE_NOT_OPEN)
    assert "there is no queue none" in warned(written("none"))
    assert "more than 63 characters" in denied(written("team-a", "x" * 64))


def test_a_gang_stays_in_its_queue_when_its_namespace_is_relabelled() -> None:
    old, new = (an_object("train", queue="team-b", size=size) for size in (2, 3))

    assert changed("gangs", old, new, known()) is ALLOWED


REQUESTS: dict[str, tuple[dict[str, str], str]] = {
    "a user asks": ({"action": "Evict", "by": "alice"}, ""),
    "a user asks in the name of another one": (
        {"action": "Evict", "by": "bob"},
        "spec.request.by: is 'bob', but alice asks; write the name of who asks",
    ),
    "a user asks for a class of the queue": ({"action": "Prioritize", "by": "alice", "priorityClass": "urgent"}, ""),
    "a user asks for a class that the queue does not have": (
        {"action": "Prioritize", "by": "alice", "priorityClass": "urgnt"},
        "spec.request.priorityClass: it names urgnt, which is no priority class of queue ranked; it has urgent",
    ),
}


@pytest.mark.parametrize(("request_", "refused"), REQUESTS.values(), ids=REQUESTS)
def test_who_asks_something_of_a_gang_writes_its_own_name_and_a_class_of_the_queue(
    request_: dict[str, str], refused: str
) -> None:
    snapshot = known(World().queue("ranked", priorityClasses=[{"name": "urgent", "value": 100}]))
    old = an_object("train", queue="ranked", size=2)
    new = an_object("train", queue="ranked", size=2, request={"id": "r-1", **request_})

    denial = changed("gangs", old, new, snapshot).denial

    assert (denial.message if denial else "") == refused
    later = an_object("train", queue="ranked", size=3, request={"id": "r-1", **request_})
    assert changed("gangs", new, later, snapshot) is ALLOWED, "what was asked before is not judged again"


def test_a_queue_that_is_being_deleted_is_no_place_for_a_new_gang() -> None:
    snapshot = known(a_cluster().deleted("team-a"))

    said = warned(created("gangs", an_object("train", queue="team-a", size=2), snapshot, namespace="ml"))

    assert "is being deleted" in said


def test_a_gang_in_a_namespace_that_was_not_seen_yet_is_answered_later() -> None:
    with pytest.raises(RetryError):
        created("gangs", an_object("train", queue="team-a", size=2), namespace="new")


def test_charges_are_added_up_by_queue() -> None:
    snapshot = known(None, a_gang("a", "q", gpus="2"), a_gang("b", "q", gpus="3", memory="1Gi"), a_gang("c", "r"))

    assert in_use.amounts(snapshot.gangs.values()) == {
        QueueName("q"): {"gpus": 5, "memory": 2**30},
        QueueName("r"): {},
    }


def test_a_finding_says_what_to_write_where_that_is_known() -> None:
    found = ObjectFinding(field="spec.a", message="is odd")

    assert str(found) == "spec.a: is odd"
    assert str(replace(found, instead="b")) == "spec.a: is odd; write: b"


# Shapes of nodes.


def test_a_shape_is_refused_for_devices_that_no_driver_could_publish() -> None:
    spec = {"maxCount": 1, "matchLabels": {"type": "a"}, "allocatable": {"cpu": 1}, "pricePerHour": 1}

    def shape(device: str) -> dict[str, Any]:
        slices = [{"driver": "gpu.example.com", "devices": [{"name": device}]}]
        kind = {"apiVersion": names.API_VERSION, "kind": "NodeShape"}
        return kind | an_object("x8", **spec, resourceSlices=slices)

    assert created("nodeshapes", shape("gpu-0")) is ALLOWED
    assert "spec.resourceSlices[0].devices[0].name: 'gpu_0' is not a DNS label" in denied(
        created("nodeshapes", shape("gpu_0"))
    )
