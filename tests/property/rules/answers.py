"""What an allocation says besides which devices: its entries, how many there are, and for which nodes it holds."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tests.property.rules import all_mode, amounts, capacities, records
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Device, Json, Pool, Use


def use_of(cluster_state: World, claim: int, entry: Json) -> Use | str:
    """Return what an entry gives to which request, or why there is no such thing."""
    ask = next((ask for asks in cluster_state.asks[claim] for ask in asks if ask.name == entry["request"]), None)
    if ask is None:
        return f"claim {claim} has no request {entry['request']}"
    pool = cluster_state.pools.get((entry["driver"], entry["pool"]), Pool())
    # A pool of which nothing may be taken has no devices to look at; say why rather than that it has none.
    wanted = records.key(entry)
    device = next((each for each in pool.devices if each.key == wanted), None)
    return Use(ask, device) if device else f"{ask.name}: {'/'.join(wanted)} is not there. {pool.wrong}".strip()


def wrong_counts(cluster_state: World, claim: int, uses: Sequence[Use]) -> Iterator[str]:
    """Compare how many devices each request of a claim got, and of which alternative."""
    for alternatives in cluster_state.asks[claim]:
        chosen = {use.ask for use in uses if use.ask in alternatives}
        counts = {ask: sum(use.ask is ask for use in uses) for ask in chosen}
        if not chosen and not any(not ask.wants_all and ask.spec.get("count", 0) == 0 for ask in alternatives):
            yield f"{alternatives[0].request} has no device"
        if len(chosen) > 1:
            yield f"{alternatives[0].request} has devices for {len(chosen)} alternatives"
        for ask, count in counts.items():
            if not ask.wants_all and count != ask.spec["count"]:
                yield f"{ask.name} has {count} devices and asks for {ask.spec['count']}"
            if ask.wants_all:
                yield from _not_all(cluster_state, ask, [use.device for use in uses if use.ask is ask])


def _not_all(cluster_state: World, ask: Ask, given: Sequence[Device]) -> Iterator[str]:
    if blocked := all_mode.blocked(cluster_state):
        yield f"{ask.name} asks for all devices, but {blocked}"
    for device in all_mode.wanted(cluster_state, ask):
        if device not in given:
            yield f"{ask.name} asks for all devices and has not got {device}"


def wrong_entry(cluster_state: World, use: Use, entry: Json) -> Iterator[str]:
    """Compare what a result says about a device, besides which it is."""
    shared = cluster_state.may_be_shared(use.device)
    offered = use.device.obj.get("capacity", {}) if shared else {}
    consumed = {name: capacities.consumption(use.ask, name, each) for name, each in offered.items()}
    conditions = use.device.obj if cluster_state.features["DeviceBindingAndStatus"] else {}
    pairs = {
        "adminAccess": (entry.get("adminAccess"), use.ask.is_admin or None),
        "tolerations": (entry.get("tolerations") or [], use.ask.spec.get("tolerations") or []),
        "shareID": (bool(entry.get("shareID")), shared),
        "consumedCapacity": (amounts.read_all(entry.get("consumedCapacity") or {}), consumed),
        "bindingConditions": (entry.get("bindingConditions"), conditions.get("bindingConditions")),
        "bindingFailureConditions": (
            entry.get("bindingFailureConditions"),
            conditions.get("bindingFailureConditions"),
        ),
    }
    for name, (got, wanted) in pairs.items():
        if got != wanted:
            yield f"{use.ask.name}: {use.device}: {name} is {got}, not {wanted}"


def wrong_node_selector(cluster_state: World, uses: Sequence[Use], got: Json | None) -> Iterator[str]:
    """An allocation is for one node if a device is; else for the nodes that all its devices' selectors allow."""
    where = [
        use.device.obj if use.device.slice["spec"].get("perDeviceNodeSelection") else use.device.slice["spec"]
        for use in uses
    ]
    if any(each.get("nodeName") for each in where) or any(use.device.obj.get("bindsToNode") for use in uses):
        here = {"key": "metadata.name", "operator": "In", "values": [cluster_state.node["metadata"]["name"]]}
        wanted = {"matchFields": _as_set([here]), "matchExpressions": _as_set([])}
    else:
        terms = [term for each in where for term in (each.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()]
        wanted = {
            key: _as_set(itertools.chain(*(term.get(key) or () for term in terms)))
            for key in ("matchFields", "matchExpressions")
        }
    got_terms = (got or {}).get("nodeSelectorTerms") or [{}]
    if len(got_terms) != 1 or {key: _as_set(got_terms[0].get(key) or ()) for key in wanted} != wanted:
        yield f"the node selector is {got}, not {wanted}"


def _as_set(requirements: Iterable[Json]) -> set[tuple[str, str, frozenset[str]]]:
    return {(each["key"], each["operator"], frozenset(each.get("values") or ())) for each in requirements}
