"""Laws of defaults: the patch is one to any reader of RFC 6902, adds only, and a second pass changes nothing."""

import json
from typing import Any

import jsonpatch
from hypothesis import given, strategies as st

from admission.api.muster import claim_policies
from admission.claimpolicy import defaults as claimpolicy_defaults, match
from admission.claimpolicy.defaults import Requester

CLASSES = st.sampled_from(["a", "b", "c", "d"])
KEYS = st.sampled_from(["x", "y", "example.com/z", "z~1"])
LABELS = st.dictionaries(st.sampled_from(["x", "y", "example.com/z"]), st.sampled_from(["", "v", "w"]), max_size=3)
DRIVERS = st.sampled_from(["one.example.com", "two.example.com"])
SELECTORS = st.lists(st.sampled_from(["true", "device.driver == 'x'"]), min_size=1, max_size=2).map(
    lambda texts: [{"cel": {"expression": text}} for text in texts]
)
TOLERATIONS = st.lists(st.sampled_from(["k", "l"]), min_size=1, max_size=2).map(
    lambda keys: [{"key": key, "operator": "Exists"} for key in keys]
)
CAPACITY = st.dictionaries(KEYS, st.sampled_from(["1Gi", "4"]), max_size=3).map(lambda amounts: {"requests": amounts})
CONFIG = st.lists(DRIVERS, min_size=1, max_size=2).map(
    lambda names: [{"opaque": {"driver": name, "parameters": {"n": 1}}} for name in names]
)
WHEN = st.sampled_from(
    [
        "true",
        "'x' in claim.metadata.?labels.orValue({})",
        "!('y' in claim.metadata.?labels.orValue({}))",
        "has(request.exactly.selectors)",
        "!has(request.exactly.tolerations)",
        "request.exactly.count > 1",
        "request.exactly.deviceClassName == 'b'",
        "claim.spec.devices.config.size() > 0",
        "claim.metadata.labels['x'] == 'v'",
        "pod.metadata.name == 'p'",
    ]
)

ENTRIES = st.fixed_dictionaries(
    {"labels": LABELS.filter(bool)},
    optional={
        "deviceClasses": st.lists(CLASSES, min_size=1, max_size=2, unique=True),
        "when": WHEN,
        "count": st.integers(1, 32),
        "selectors": SELECTORS,
        "tolerations": TOLERATIONS,
        "capacity": CAPACITY,
        "config": CONFIG,
    },
)
ALIASES = st.builds(
    lambda entry, alias, target: {**entry, "deviceClasses": [alias], "deviceClassName": target},
    ENTRIES,
    CLASSES,
    CLASSES,
)
POLICIES = st.lists(st.one_of(ENTRIES, ALIASES), max_size=6)

ASKED = st.fixed_dictionaries(
    {"deviceClassName": CLASSES},
    optional={
        "allocationMode": st.sampled_from(["ExactCount", "All", ""]),
        "count": st.integers(0, 3),
        "selectors": st.one_of(st.none(), st.just([]), SELECTORS),
        "tolerations": st.one_of(st.none(), st.just([]), TOLERATIONS),
        "capacity": st.one_of(st.none(), st.just({}), CAPACITY),
    },
)
NAMED = ASKED.map(lambda asked: {"name": "sub", **asked})
REQUESTS = st.one_of(
    ASKED.map(lambda asked: {"name": "r", "exactly": asked}),
    st.lists(NAMED, min_size=1, max_size=3).map(lambda subs: {"name": "r", "firstAvailable": subs}),
    ASKED.map(lambda asked: {"name": "r", **asked}),
)
DEVICES = st.fixed_dictionaries(
    {"requests": st.lists(REQUESTS, max_size=3)}, optional={"config": st.one_of(st.none(), st.just([]), CONFIG)}
)
METADATA = st.fixed_dictionaries(
    {"name": st.just("c"), "namespace": st.just("ml")}, optional={"labels": st.one_of(st.none(), LABELS)}
)

ASKER = Requester(namespace={"metadata": {"name": "ml"}})


def an_object(metadata: dict[str, Any], devices: dict[str, Any], *, template: bool) -> dict[str, Any]:
    """Return it as it is parsed: hypothesis may give one value in two places, and a change of one would be of both."""
    spec = {"devices": devices}
    sent = json.dumps({"metadata": metadata, "spec": {"spec": spec} if template else spec})
    parsed: dict[str, Any] = json.loads(sent)
    return parsed


@given(POLICIES, METADATA, DEVICES, st.booleans())
def test_claim_defaults_applied_twice_change_nothing_more(
    defaults: list[dict[str, Any]], metadata: dict[str, Any], devices: dict[str, Any], template: bool
) -> None:
    policy = claim_policies.decode({"metadata": {"name": "p"}, "spec": {"defaults": defaults}})
    entries = match.compile_policy(policy).defaults
    obj = an_object(metadata, devices, template=template)

    done = claimpolicy_defaults.complete(entries, obj, ASKER, template=template)

    patched = jsonpatch.apply_patch(obj, list(done.patch))
    assert patched == done.obj
    assert claimpolicy_defaults.complete(entries, patched, ASKER, template=template).patch == ()


@given(POLICIES, METADATA, DEVICES)
def test_claim_defaults_keep_what_the_author_wrote(
    defaults: list[dict[str, Any]], metadata: dict[str, Any], devices: dict[str, Any]
) -> None:
    policy = claim_policies.decode({"metadata": {"name": "p"}, "spec": {"defaults": defaults}})
    entries = match.compile_policy(policy).defaults
    obj = an_object(metadata, devices, template=False)

    done = claimpolicy_defaults.complete(entries, obj, ASKER, template=False)

    assert _holds(done.obj, obj)


def _holds(after: Any, before: Any) -> bool:
    """Return whether all that was written is still there. The class may be an alias, and empty is not written."""
    if before in (None, "", 0, [], {}):
        return True
    if isinstance(before, dict):
        return all(key == "deviceClassName" or _holds(after.get(key), value) for key, value in before.items())
    if isinstance(before, list):
        return len(after) >= len(before) and all(map(_holds, after, before))
    return bool(after == before)
