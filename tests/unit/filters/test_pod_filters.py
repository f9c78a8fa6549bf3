"""Which nodes kube-scheduler's filters that look at other pods leave to a pod, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import nodes, pods
from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName
from admission.filters.placed_pods import PlacedPod, PlacedPods
from admission.filters.pod_rules import PodRules
from admission.filters.refusal import Rule

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "zone"
ZONES = {"a1": "a", "a2": "a", "b1": "b", "none": None}
"""Nodes and their zones."""


def a_node(name: str, zone: str | None) -> Node:
    labels = {HOST: name, **({ZONE: zone} if zone else {})}
    return nodes.decode({"metadata": {"name": name, "labels": labels}})


NODES = {NodeName(name): a_node(name, zone) for name, zone in ZONES.items()}


def a_pod(app: str = "web", *, namespace: str = "team", labels: Json | None = None, **spec: Any) -> Pod:
    meta = {"name": app, "namespace": namespace, "uid": app, "labels": {"app": app, **(labels or {})}}
    return pods.decode({"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}})


def placed(*there: tuple[str, Pod], namespaces: dict[str, Json] | None = None) -> PlacedPods:
    known = {
        name: nodes.decode_namespace({"metadata": {"name": name, "labels": labels}})
        for name, labels in (namespaces or {}).items()
    }
    pairs = ((NodeName(node), pods_uid(number), PlacedPod.of(pod)) for number, (node, pod) in enumerate(there))
    return PlacedPods(namespaces=known).added(pairs)


def pods_uid(number: int) -> Any:
    return f"there-{number}"


def term(key: str, app: str | None = "web", **more: Any) -> Json:
    selector = {} if app is None else {"labelSelector": {"matchLabels": {"app": app}}}
    return {"topologyKey": key, **selector, **more}


def apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def together(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def spread(key: str, **more: Any) -> Json:
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    one = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector, **more}
    return {"topologySpreadConstraints": [one]}


def port(number: int, **more: Any) -> Json:
    return {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": number, **more}]}]}


def fits(pod: Pod, there: PlacedPods) -> str:
    rules = PodRules(pod, there, NODES)
    return " ".join(name for name, node in NODES.items() if rules.refuses(node) is None)


ANYWHERE = "a1 a2 b1 none"
LIMITED: dict[str, tuple[Pod, PlacedPods, str]] = {
    "anti-affinity keeps a pod off the node of a pod that it names": (
        a_pod(**apart(term(HOST))),
        placed(("a1", a_pod())),
        "a2 b1 none",
    ),
    "anti-affinity by zone keeps it off the zone; a node without the label is no domain": (
        a_pod(**apart(term(ZONE))),
        placed(("a1", a_pod())),
        "b1 none",
    ),
    "anti-affinity is about the pod's own namespace": (
        a_pod(**apart(term(HOST))),
        placed(("a1", a_pod(namespace="other"))),
        ANYWHERE,
    ),
    "unless it names namespaces": (
        a_pod(**apart(term(HOST, namespaces=["other"]))),
        placed(("a1", a_pod(namespace="other")), ("a2", a_pod())),
        "a2 b1 none",
    ),
    "or selects them by label": (
        a_pod(**apart(term(HOST, namespaceSelector={"matchLabels": {"tier": "x"}}))),
        placed(("a1", a_pod(namespace="other")), ("a2", a_pod()), namespaces={"other": {"tier": "x"}, "team": {}}),
        "a2 b1 none",
    ),
    "an empty namespace selector is every namespace": (
        a_pod(**apart(term(HOST, namespaceSelector={}))),
        placed(("a1", a_pod(namespace="other")), ("a2", a_pod())),
        "b1 none",
    ),
    "the anti-affinity of a pod that is there keeps others off": (
        a_pod(),
        placed(("a1", a_pod("db", **apart(term(ZONE, "web"))))),
        "b1 none",
    ),
    "a term without a selector is about no pod": (a_pod(**apart(term(HOST, None))), placed(("a1", a_pod())), ANYWHERE),
    "matchLabelKeys narrow a term to pods with the pod's own value": (
        a_pod(labels={"v": "2"}, **apart(term(HOST, matchLabelKeys=["v"]))),
        placed(("a1", a_pod(labels={"v": "1"})), ("a2", a_pod(labels={"v": "2"}))),
        "a1 b1 none",
    ),
    "mismatchLabelKeys narrow it to those with another": (
        a_pod(labels={"v": "2"}, **apart(term(HOST, mismatchLabelKeys=["v"]))),
        placed(("a1", a_pod(labels={"v": "1"})), ("a2", a_pod(labels={"v": "2"}))),
        "a2 b1 none",
    ),
    "affinity needs a pod in the domain": (a_pod(**together(term(ZONE, "db"))), placed(("a1", a_pod("db"))), "a1 a2"),
    "without such a pod there is no node": (a_pod(**together(term(ZONE, "db"))), placed(), ""),
    "the first pod of a group that wants to be together may go where the label is": (
        a_pod(**together(term(ZONE))),
        placed(),
        "a1 a2 b1",
    ),
    "no longer the first once one is there": (a_pod(**together(term(ZONE))), placed(("b1", a_pod())), "b1"),
    "a pod outside every domain does not count": (
        a_pod(**together(term(ZONE))),
        placed(("none", a_pod())),
        "a1 a2 b1",
    ),
    "several terms need pods that all of them are about": (
        a_pod(**together(term(ZONE, "db"), term(HOST, "cache"))),
        placed(("a1", a_pod("db")), ("a1", a_pod("cache"))),
        "",
    ),
    "a spread keeps the skew": (a_pod(**spread(ZONE)), placed(("a1", a_pod())), "b1"),
    "a spread by node counts every node that has the label": (
        a_pod(**spread(HOST)),
        placed(("a1", a_pod()), ("b1", a_pod())),
        "a2 none",
    ),
    "a larger skew allows more": (a_pod(**spread(ZONE, maxSkew=2)), placed(("a1", a_pod())), "a1 a2 b1"),
    "with too few domains the least is none": (
        a_pod(**spread(ZONE, minDomains=3)),
        placed(("a1", a_pod()), ("b1", a_pod())),
        "",
    ),
    "nodes that the pod's node selector excludes are no domains": (
        a_pod(nodeSelector={ZONE: "a"}, **spread(ZONE)),
        placed(("a1", a_pod())),
        "a1 a2 b1",
    ),
    "but with the policy Ignore they are": (
        a_pod(nodeSelector={ZONE: "a"}, **spread(ZONE, nodeAffinityPolicy="Ignore")),
        placed(("a1", a_pod())),
        "b1",
    ),
    "ScheduleAnyway keeps no pod off": (
        a_pod(**spread(ZONE, whenUnsatisfiable="ScheduleAnyway")),
        placed(("a1", a_pod())),
        ANYWHERE,
    ),
    "pods that are being deleted do not count for a spread": (
        a_pod(**spread(ZONE)),
        placed(("a1", replace(a_pod(), meta=replace(a_pod().meta, deleted=EPOCH)))),
        "a1 a2 b1",
    ),
    "pods of another namespace do not count for a spread": (
        a_pod(**spread(ZONE)),
        placed(("a1", a_pod(namespace="other"))),
        "a1 a2 b1",
    ),
    "a host port is taken once on a node": (a_pod(**port(80)), placed(("a1", a_pod("x", **port(80)))), "a2 b1 none"),
    "by protocol": (a_pod(**port(80)), placed(("a1", a_pod("x", **port(80, protocol="UDP")))), ANYWHERE),
    "and by address": (
        a_pod(**port(80, hostIP="10.0.0.1")),
        placed(("a1", a_pod("x", **port(80, hostIP="10.0.0.2"))), ("a2", a_pod("y", **port(80)))),
        "a1 b1 none",
    ),
    "with hostNetwork every port is one": (
        a_pod(hostNetwork=True, containers=[{"name": "c", "ports": [{"containerPort": 80}]}]),
        placed(("a1", a_pod("x", **port(80)))),
        "a2 b1 none",
    ),
    "a sidecar's port counts and that of another init container does not": (
        a_pod(
            initContainers=[
                {"name": "i", "ports": [{"containerPort": 1, "hostPort": 81}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 80}]},
            ]
        ),
        placed(("a1", a_pod("x", **port(80))), ("a2", a_pod("y", **port(81)))),
        "a2 b1 none",
    ),
}


@pytest.mark.parametrize(("pod", "there", "expected"), LIMITED.values(), ids=LIMITED)
def test_a_pod_fits(pod: Pod, there: PlacedPods, expected: str) -> None:
    assert fits(pod, there) == expected


REASONS = {
    Rule.POD_ANTI_AFFINITY: (a_pod(**apart(term(HOST))), placed(("a1", a_pod()))),
    Rule.ANTI_AFFINITY_OF_OTHERS: (a_pod(), placed(("a1", a_pod("db", **apart(term(HOST)))))),
    Rule.POD_AFFINITY: (a_pod(**together(term(HOST, "db"))), placed(("a2", a_pod("db")))),
    Rule.SPREAD: (a_pod(**spread(HOST)), placed(("a1", a_pod()))),
    Rule.SPREAD_DOMAINS: (a_pod(**spread(HOST, minDomains=9)), placed(*((name, a_pod()) for name in NODES))),
    Rule.PORTS: (a_pod(**port(80)), placed(("a1", a_pod("x", **port(80))))),
}


@pytest.mark.parametrize(("rule", "scene"), REASONS.items(), ids=map(str, REASONS))
def test_a_refusal_names_the_rule_and_its_label(rule: Rule, scene: tuple[Pod, PlacedPods]) -> None:
    refusal = PodRules(*scene, NODES).refuses(NODES[NodeName("a1")])

    assert refusal is not None
    assert (refusal.rule, refusal.key) == (rule, "" if rule is Rule.PORTS else HOST)
    assert refusal.why
    assert rule is not Rule.SPREAD_DOMAINS or f"on {HOST} (it is 9, and there are 4 domains)" in refusal.title


def test_a_pinned_pod_with_min_domains_is_judged_by_its_node_alone() -> None:
    """Its node affinity names one node, so for kube-scheduler there is one domain, and the least is none."""
    pod, there = a_pod(**spread(ZONE, minDomains=2)), placed(("a1", a_pod()), ("b1", a_pod()))

    refused = [name for name, node in NODES.items() if PodRules(pod, there, NODES, pinned=True).refuses(node)]

    assert refused == ["a1", "b1", "none"]
    assert fits(pod, there) == "a1 a2 b1"


def test_pods_that_come_later_may_keep_others_off_by_other_labels() -> None:
    before = placed(("a1", a_pod("one", **apart(term(HOST, "one")))))
    assert fits(a_pod(), before) == ANYWHERE
    of_tier = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"tier": "x"}}}

    after = before.added([(NodeName("b1"), pods_uid(1), PlacedPod.of(a_pod("two", **apart(of_tier))))])

    assert [fits(a_pod(labels={"tier": tier}), after) for tier in ("y", "x")] == [ANYWHERE, "a1 a2 none"]


def test_what_a_pod_of_the_gang_adds_is_taken_back() -> None:
    pod, other = a_pod(**apart(term(ZONE)), **spread(HOST), **port(80)), a_pod(**port(80))
    rules = PodRules(pod, placed(("b1", a_pod())), NODES)
    effect = rules.effect(other)
    before = [rules.refuses(node) for node in NODES.values()]

    assert effect is not None
    rules.add(effect, NODES[NodeName("a1")], 1)
    assert [rules.refuses(node) for node in NODES.values()] != before
    rules.add(effect, NODES[NodeName("a1")], -1)

    assert [rules.refuses(node) for node in NODES.values()] == before


def test_pods_on_nodes_follow_those_that_come_and_go() -> None:
    there = placed(("a1", a_pod(**apart(term(HOST)))), ("a2", a_pod("x", **port(80))))

    assert [*there.with_anti_affinity, *there.with_ports] == ["a1", "a2"]
    left = there.without(frozenset({pods_uid(0)}))
    assert [*left.with_anti_affinity, *left.with_ports] == ["a2"]
    assert PlacedPods.build(left.by_node, left.namespaces).with_ports == {"a2"}
    assert fits(a_pod(**apart(term(HOST))), left) == ANYWHERE
