"""A pod's trace, from its review to its gate, as a collector gets it over HTTP."""

import json
from dataclasses import replace
from typing import Any

import pytest

from admission import default_ports
from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.errors import RetryError
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.telemetry import tracing
from tests import collecting
from tests.builders import NOON, a_cluster
from tests.collecting import Collector, Span
from tests.unit.cycle.test_cycle import Cluster, Ledger

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


collector = collecting.collector()


def exporting(collector: Collector, sampled: float = 1.0) -> Any:
    return tracing.exporting(collector.url, sampled=sampled, roles=("webhook", "controller"))


def review(**more: Any) -> Review:
    return Review(
        uid="r1", group="", version="v1", resource="pods", kind="Pod", operation="CREATE", namespace="team", **more
    )


def carried(pod: Pod, trace: str) -> Pod:
    return replace(pod, meta=replace(pod.meta, annotations={**pod.meta.annotations, names.TRACE: trace}))


def desk_of(cluster: Cluster, traces: tracing.Traces) -> Leader:
    ports = Ports(
        view=cluster,
        pods=cluster,
        claims=cluster,
        workloads=cluster,
        reports=cluster,
        ledger=Ledger(),
        queues=cluster,
        traces=traces,
    )
    return Leader.build(ports=ports, actor="test", epoch=1)


async def lead(cluster: Cluster, traces: tracing.Traces) -> None:
    """Run one cycle."""
    with traces.cycle():
        await cycle.run(desk_of(cluster, traces), NOON)


def one(collector: Collector, name: str) -> Span:
    (span,) = collector.named(name)
    return span


def a_gang(*traces: str) -> Cluster:
    """Return a cluster that has room for a gang, whose pods carry these traces."""
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=len(traces)))
    pods = zip(sorted(cluster._pods.values(), key=lambda pod: pod.meta.name), traces, strict=True)
    cluster._pods = {pod.meta.uid: carried(pod, trace) for pod, trace in pods}
    return cluster


async def test_a_review_goes_on_with_the_api_servers_trace_and_leaves_its_own_on_the_pod(collector: Collector) -> None:
    cluster = Cluster(a_cluster().queue("q", gpus=4))
    pod = {"metadata": {"name": "a", "labels": {names.QUEUE: "q"}}, "spec": {}}

    async with exporting(collector) as traces:
        judge = lambda review: reviewer.mutate(review, cluster, caches=ReviewCaches())  # noqa: E731
        with traces.review("mutate", PARENT, judge) as traced:
            verdict = traced(review(obj=pod, username="alice"))

    span = one(collector, "review mutate")
    assert (span.trace, span.parent, span.service) == (TRACE, SPAN, "muster")
    assert span.attributes.items() >= {"muster.namespace": "team", "muster.allowed": True}.items()
    [written] = [one for one in verdict.patch if "annotations" in str(one["path"])]
    assert f"00-{TRACE}-{span.id}-01" in json.dumps(written)


async def test_a_refusal_and_a_failure_are_seen(collector: Collector) -> None:
    def refuse(_review: Review) -> Verdict:
        return Verdict(denial=Denial(DenyReason.NEVER_FITS, "too large"))

    def fail(_review: Review) -> Verdict:
        raise RetryError("not yet")

    async with exporting(collector) as traces:
        with traces.review("validate", "", refuse) as traced:
            traced(review())
        with pytest.raises(RetryError), traces.review("mutate", "", fail) as traced:
            traced(review())

    refused = one(collector, "review validate")
    assert refused.attributes.items() >= {"muster.allowed": False, "muster.reason": "NeverFits"}.items()
    assert not refused.failed
    assert one(collector, "review mutate").failed


@pytest.mark.parametrize("header", ["", "nonsense", "00-0-0-01", f"00-{'0' * 32}-{SPAN}-01"])
async def test_an_invalid_trace_context_begins_a_new_trace(collector: Collector, header: str) -> None:
    async with exporting(collector) as traces:
        with traces.review("mutate", header, lambda _review: ALLOWED) as traced:
            traced(review())

    assert one(collector, "review mutate").parent == ""


async def test_a_review_span_has_the_uid_of_the_owner_of_the_pod(collector: Collector) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-train", "controller": True}
    async with exporting(collector) as traces:
        with traces.review("mutate", PARENT, lambda _review: ALLOWED) as traced:
            traced(review(obj={"metadata": {"ownerReferences": [owner]}}))

    assert one(collector, "review mutate").attributes["muster.gang_uid"] == "job-train"


async def test_a_gangs_trace_goes_from_its_first_pod_to_every_gate(collector: Collector) -> None:
    other = f"00-{'1' * 32}-{'2' * 16}-01"

    async with exporting(collector) as traces:
        await lead(a_gang(PARENT, other), traces)

    gang, whole = one(collector, "admit gang"), one(collector, "cycle")
    assert (gang.trace, gang.parent) == (TRACE, SPAN)
    assert gang.attributes == {"muster.gang": "team/train-4a3a5", "muster.gang_uid": "job-train", "muster.queue": "q"}
    assert set(gang.links) == {whole.id, "2" * 16}
    below = [span for span in collector.spans if span.parent == gang.id]
    assert sorted(span.name for span in below) == ["commit", "open gate", "open gate", "plan"]
    assert {span.trace for span in below} == {TRACE}
    begun = {span.name: span.began for span in below}
    assert gang.began <= begun["plan"] <= begun["commit"] <= begun["open gate"] <= gang.ended
    steps = [span.name for span in collector.spans if span.parent == whole.id]
    assert sorted(steps) == ["commit", "gather", "plan", "report"]


async def test_a_gate_that_does_not_open_is_seen(collector: Collector) -> None:
    cluster = a_gang(PARENT)
    cluster.refuse = {"train-0"}

    async with exporting(collector) as traces:
        await lead(cluster, traces)

    gate = one(collector, "open gate")
    assert (gate.failed, gate.attributes["muster.object"]) == (True, "team/train-0")


async def test_a_gang_whose_review_was_not_traced_is_not_traced(collector: Collector) -> None:
    async with exporting(collector) as traces:
        await lead(a_gang(PARENT.removesuffix("01") + "00"), traces)

    assert collector.named("cycle")
    assert not collector.named("admit gang")
    assert not collector.named("open gate")


async def test_only_a_part_is_traced_where_that_is_asked_for(collector: Collector) -> None:
    async with exporting(collector, sampled=0.0) as traces:
        with traces.review("mutate", "", lambda _review: ALLOWED) as traced:
            traced(review())
        with traces.review("mutate", PARENT, lambda _review: ALLOWED) as traced:
            traced(review())

    assert one(collector, "review mutate").trace == TRACE


def test_without_tracing_no_trace_annotation_is_written_on_pods() -> None:
    cluster = Cluster(a_cluster().queue("q", gpus=4))
    pod = {"metadata": {"name": "a", "labels": {names.QUEUE: "q"}}, "spec": {}}

    verdict = reviewer.mutate(review(obj=pod, username="alice"), cluster, caches=ReviewCaches())
    assert names.TRACE not in json.dumps(verdict.patch)
    assert default_ports.UNTRACED.step("plan") is default_ports.UNTRACED.write("open gate", "u", "a/b")
