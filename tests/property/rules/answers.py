"""What an allocation says besides which devices: its entries, how many there are, and for which nodes it holds."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tests.property.rules import all_mode, amounts, capacities, records
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Device, Json, Pool, Use


def use_of(cluster_state: World, claim: int, entry: Json) -> Use | str:
    """Return what an entry gives to which request, or why there is no such thing."""
    parsed = next(
        (
            parsed
            for parsed_requests in cluster_state.parsed_requests[claim]
            for parsed in parsed_requests
            if parsed.name == entry["request"]
        ),
        None,
    )
    if parsed is None:
        return f"claim {claim} has no request {entry['request']}"
    pool = cluster_state.pools.get((entry["driver"], entry["pool"]), Pool())
    # A pool of which nothing may be taken has no devices to look at; say why rather than that it has none.
    wanted = records.key(entry)
    device = next((each for each in pool.devices if each.key == wanted), None)
    return Use(parsed, device) if device else f"{parsed.name}: {'/'.join(wanted)} is not there. {pool.wrong}".strip()


def wrong_counts(cluster_state: World, claim: int, uses: Sequence[Use]) -> Iterator[str]:
    """Compare how many devices each request of a claim got, and of which alternative."""
    for alternatives in cluster_state.parsed_requests[claim]:
        chosen = {use.parsed for use in uses if use.parsed in alternatives}
        counts = {parsed: sum(use.parsed is parsed for use in uses) for parsed in chosen}
        if not chosen and not any(not parsed.wants_all and parsed.spec.get("count", 0) == 0 for parsed in alternatives):
            yield f"{alternatives[0].request} has no device"
        if len(chosen) > 1:
            yield f"{alternatives[0].request} has devices for {len(chosen)} alternatives"
        for parsed, count in counts.items():
            if not parsed.wants_all and count != parsed.spec["count"]:
                yield f"{parsed.name} has {count} devices and asks for {parsed.spec['count']}"
            if parsed.wants_all:
                yield from _not_all(cluster_state, parsed, [use.device for use in uses if use.parsed is parsed])


def _not_all(cluster_state: World, parsed: Ask, given: Sequence[Device]) -> Iterator[str]:
    if blocked := all_mode.blocked(cluster_state):
        yield f"{parsed.name} asks for all devices, but {blocked}"
    for device in all_mode.wanted(cluster_state, parsed):
        if device not in given:
            yield f"{parsed.name} asks for all devices and has not got {device}"


def wrong_entry(cluster_state: World, use: Use, entry: Json) -> Iterator[str]:
    """Compare what a result says about a device, besides which it is."""
    shared = cluster_state.may_be_shared(use.device)
    offered = use.device.obj.get("capacity", {}) if shared else {}
    consumed = {name: capacities.consumption(use.parsed, name, each) for name, each in offered.items()}
    conditions = use.device.obj if cluster_state.features["DeviceBindingAndStatus"] else {}
    pairs = {
        "adminAccess": (entry.get("adminAccess"), use.parsed.is_admin or None),
        "tolerations": (entry.get("tolerations") or [], use.parsed.spec.get("tolerations") or []),
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
            yield f"{use.parsed.name}: {use.device}: {name} is {got}, not {wanted}"


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
