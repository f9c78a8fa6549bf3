"""Who borrows never comes before who does not, also where the charge is certain only with the plan."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from admission.api.traces import NOTHING
from admission.scheduling.checks import chain
from admission.scheduling.checks.chain import Inputs
from tests.property.test_replay import Controlled
from tests.unit.simulation.simulated import Objects, expand, objects
from tests.unit.simulation.test_replay import play, queue, row, starts, town, trace

COUNT: dict[str, Any] = {"count": {}}
SOURCES: Mapping[str, tuple[dict[str, Any], int]] = {
    "count": (COUNT, 1),
    "expression": ({"expression": {"cel": "4"}}, 4),
    "price": ({"expression": {"cel": "device.attributes['gpu.example.com'].model == 'A100' ? 4 : 1"}}, 4),
    "selector": ({"selector": "device.attributes['gpu.example.com'].model == 'A100'", **COUNT}, 1),
    "capacity": ({"capacity": {"name": "units"}}, 4),
}
"""What a meter measures, and the charge of a device by it."""

TWO = {"parent": "top"}


def metered(source: dict[str, Any], *, gpus: int = 4) -> list[Objects]:
    """One node of which each device is charged by a source."""
    made = objects("""
        {apiVersion: v1, kind: Node, metadata: {name: one}}
        ---
        {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {}}
    """)
    device = {"attributes": {"model": {"string": "A100"}}, "capacity": {"units": {"value": "4"}}}
    pool = {"name": "one", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}", **device} for number in range(gpus)]
    spec = {"driver": "gpu.example.com", "nodeName": "one", "pool": pool, "devices": devices}
    meter = {"sources": [{"deviceClasses": ["gpu"], **source}]}
    return [
        made,
        [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "one"}, "spec": spec}],
        [{"apiVersion": "muster.dev/v1alpha1", "kind": "Meter", "metadata": {"name": "gpus"}, "spec": meter}],
    ]


def certain(gpus: int, source: dict[str, Any]) -> dict[str, Any]:
    """Return claims that repeat the selector of a source, so that their charge is known without a plan."""
    return {"claims": [{"class": "gpu", "count": gpus, "selectors": [source["selector"]]}]}


def both(parts: list[Objects], *rows: dict[str, Any]) -> dict[str, float | None]:
    """Return when jobs start, by the controller as in a replay."""
    found = starts(play(town(*parts), *rows))
    decided = asyncio.run(Controlled(expand(*parts)).starts(trace(rows)))
    assert decided == {name: start for name, start in found.items() if start is not None}
    return found


@pytest.mark.parametrize(("source", "price"), SOURCES.values(), ids=SOURCES)
def test_an_owner_starts_before_a_borrower_that_has_waited_longer(source: dict[str, Any], price: int) -> None:
    queues = [queue("top", 0), queue("borrower", 0, **TWO), queue("owner", 2 * price, **TWO)]
    rows = [row("a", 0, 50, queue="borrower", gpus=2), row("b", 0, 50, queue="owner", gpus=2)]

    assert both([*metered(source), *queues], *rows) == {"a": 50, "b": 0}


def test_the_smaller_share_is_next_though_another_queue_seems_to_borrow_nothing() -> None:
    source, _ = SOURCES["selector"]
    fair: dict[str, Any] = {**TWO, "fairSharing": {"weight": 1}}
    queues = [queue("top", 4), queue("x", 0, **fair), queue("y", 0, **fair)]
    rows = [row(name, 0, 50, queue="x", gpus=2) for name in "ab"]
    rows.append({**row("c", 0, 50, queue="y"), **certain(2, source)})

    assert both([*metered(source, gpus=6), *queues], *rows) == {"a": 0, "b": 50, "c": 0}


@pytest.mark.parametrize(("source", "price"), SOURCES.values(), ids=SOURCES)
def test_queues_are_compared_where_their_paths_meet(source: dict[str, Any], price: int) -> None:
    above = [queue("top", 0), queue("left", 0, **TWO), queue("right", 2 * price, **TWO)]
    queues = [*above, queue("x", 0, parent="left"), queue("y", 0, parent="right")]
    rows = [row("a", 0, 50, queue="x", gpus=2), row("b", 0, 50, queue="y", gpus=2)]

    assert both([*metered(source), *queues], *rows) == {"a": 50, "b": 0}


def test_what_a_queue_keeps_is_not_lent_to_a_gang_whose_charge_was_unknown() -> None:
    """w would borrow as z does, and has waited longer, so it has its turn first."""
    source, _ = SOURCES["selector"]
    queues = [queue("top", 0), queue("borrower", 1, **TWO), queue("owner", 3, **TWO)]
    rows = [
        row("a", 0, 50, queue="borrower", declared=NOTHING),
        row("b", 0, 50, queue="owner", declared=NOTHING),
        {**row("w", 0, 50, queue="owner", declared=NOTHING), **certain(3, source)},
        row("z", 0, 50, queue="borrower", gpus=2, declared=NOTHING),
    ]

    assert both([*metered(source), *queues], *rows) == {"a": 0, "b": 0, "w": 50, "z": 100}


@pytest.mark.parametrize(("source", "planned"), [("count", "ab"), ("price", "abb")])
def test_a_plan_is_searched_again_only_after_a_change(
    source: str, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are postponed where the charge is unknown; when it is b's turn again, a has started."""
    searches: list[str] = []
    decide = chain.decide

    def counted(inputs: Inputs) -> Any:
        searches.append(inputs.group.key)
        return decide(inputs)

    monkeypatch.setattr(chain, "decide", counted)
    measure, price = SOURCES[source]
    queues = [queue("top", 4 * price), queue("x", 0, **TWO), queue("y", 0, **TWO)]
    rows = [row("a", 0, 50, queue="x", gpus=2), row("b", 0, 50, queue="y", gpus=2)]

    assert starts(play(town(*metered(measure), *queues), *rows)) == {"a": 0, "b": 0}
    assert [key.removeprefix("trace/") for key in searches] == [*planned]
