"""Who the members of a queue are: namespaces, users by the books and the pods, and labels of namespaces."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Holding, Placement
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.quota.fair_share import MemberHistory
from admission.quota.queue_order import BY_RANK
from admission.quota.tree import Tree
from admission.scheduling.cache.member_usage import MemberUsage
from admission.workloads import gangs
from admission.workloads.gangs import Group
from tests.builders import a_cluster

Q = QueueName("q")
GPUS = MeterName("gpus")


def a_tree(**within: object) -> Tree:
    spec = {"fairSharing": {"within": within}, "quotas": [{"meter": "gpus", "nominal": "8"}]}
    return Tree.build([queues.decode({"metadata": {"name": "q"}, "spec": spec})])


def a_placement(name: str, gpus: int, user: str = "") -> Placement:
    claim = Uid(f"claim-{name}")
    holding = Holding(claim_uid=claim, claim=name, devices=(), charge={GPUS: gpus})
    return Placement(
        gang_uid=GangUid(name),
        gang=name,
        queue=Q,
        reserved_at=datetime(2026, 1, 1, tzinfo=UTC),
        user=user,
        holdings={claim: holding},
    )


def waiting() -> tuple[Group, ...]:
    builder = a_cluster()
    for name, user in (("x", "ann"), ("y", "bob")):
        builder.job(name, queue="q", namespace=name, annotations={names.USER: user})
    snapshot = builder.snapshot()
    return tuple(gangs.groups(snapshot, {}))


def first(usage: MemberUsage, tree: Tree, *placements: Placement, labels: dict[str, str] | None = None) -> str:
    found = waiting()
    namespaces = {name: Namespace(meta=Meta(name=name), labels={"team": team}) for name, team in (labels or {}).items()}
    held = {one.gang_uid: one for one in placements}
    order = usage.order({Q: found}, held, namespaces, tree, lambda _: {GPUS: 1})
    return order.sorted(found)[0].identity.namespace


def test_without_shares_of_members_gangs_have_their_own_rank() -> None:
    tree = Tree.build([queues.decode({"metadata": {"name": "q"}, "spec": {"fairSharing": {"weight": "1"}}})])

    assert MemberUsage().order({Q: waiting()}, {}, {}, tree, lambda _: {}) is BY_RANK


def test_members_are_namespaces() -> None:
    assert first(MemberUsage(), a_tree(by="Namespace"), a_placement("x/other", 1)) == "y"


def test_members_are_users_as_the_ledger_and_the_pods_name_them() -> None:
    assert first(MemberUsage(), a_tree(by="User"), a_placement("z/other", 1, user="ann")) == "y"
    assert first(MemberUsage(), a_tree(by="User"), a_placement("x/other", 1, user="bob")) == "x"


def test_members_are_the_values_of_a_label_of_namespaces() -> None:
    tree, labels = a_tree(by="Label", label="team"), {"x": "red", "y": "blue", "z": "red"}

    assert first(MemberUsage(), tree, a_placement("z/other", 1), labels=labels) == "y"
    assert first(MemberUsage(), tree, a_placement("z/other", 1), labels={**labels, "z": "blue"}) == "x"


def test_what_is_counted_follows_placements_queues_and_labels() -> None:
    usage, tree, labels = MemberUsage(), a_tree(by="Label", label="team"), {"x": "red", "y": "blue", "z": "red"}
    one = a_placement("z/other", 1)

    assert first(usage, tree, one, labels=labels) == "y"
    assert first(usage, tree, replace(one, holdings={}), labels=labels) == "x"
    assert first(usage, tree, one, a_placement("y/more", 2), labels=labels) == "x"
    assert first(usage, tree, labels=labels) == "x"
    assert first(usage, a_tree(by="Namespace"), a_placement("x/one", 1), labels=labels) == "y"
    heavier = a_tree(by="Namespace", weights=[{"name": "x", "weight": "4"}])
    assert first(usage, heavier, a_placement("x/one", 2), a_placement("y/one", 1), labels=labels) == "x"


DAY, NOW = timedelta(days=1), datetime(2026, 1, 1, tzinfo=UTC)


def a_history(**used: float) -> MemberHistory:
    return MemberHistory(
        at=NOW,
        half_lives={Q: DAY},
        use={(Q, *key.split("_"), GPUS): amount for key, amount in used.items()},  # type: ignore[misc]
    )


def test_past_use_counts_beside_present_use_where_a_half_life_is_said() -> None:
    usage, tree, history = MemberUsage(), a_tree(by="User", halfLife="24h"), a_history(x_ann=4.0)

    def asked(days: int, *placements: Placement) -> str:
        usage.read(history, NOW + days * DAY)
        return first(usage, tree, *placements)

    assert asked(0) == "y", "ann of namespace x has used more"
    # A quarter of it is left after two days, and bob uses one now, as much as he has used since.
    assert asked(0, a_placement("y/one", 1, user="bob")) == "y"
    assert asked(2, a_placement("y/one", 1, user="bob")) == "x"
    # Of bob's gang 15/16 count when it has ended after four half-lives, of what ann has used before 4/16.
    assert asked(4) == "x"
    assert asked(4, a_placement("x/one", 1, user="ann")) == "y"


def test_past_use_is_that_of_the_members_of_now_and_none_without_a_half_life() -> None:
    labels = {"x": "red", "y": "blue", "z": "red"}
    usage = MemberUsage()
    usage.read(a_history(z_ann=4.0), NOW)

    assert first(usage, a_tree(by="Label", label="team", halfLife="24h"), labels=labels) == "y"
    assert first(usage, a_tree(by="Label", label="team", halfLife="24h"), labels={**labels, "z": "blue"}) == "x"
    assert first(usage, a_tree(by="Label", label="team"), labels=labels) == "x"


def test_a_history_that_is_read_anew_replaces_what_was_known() -> None:
    usage, tree = MemberUsage(), a_tree(by="User", halfLife="24h")
    usage.read(a_history(x_ann=4.0), NOW)
    usage.read(a_history(y_bob=4.0), NOW)

    assert first(usage, tree) == "x"
