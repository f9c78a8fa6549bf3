"""Whatever an object holds, validation finds problems and raises nothing."""

from hypothesis import given, strategies as st

from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import validation
from tests.unit.api import refused
from tests.unit.api.cases import Json

KINDS = {obj["kind"] for obj in refused.GOOD.values()}

NAMES = ["metadata", "spec", "status", "devices", "requests", "exactly", "firstAvailable", "selectors", "cel", "config"]

NAMES += ["expression", "constraints", "opaque", "parameters", "capacity", "requestPolicy", "validValues", "validRange"]

NAMES += [
    "min",
    "step",
    "default",
    "value",
    "attributes",
    "ints",
    "strings",
    "version",
    "taints",
    "tolerations",
    "name",
]

NAMES += ["pool", "nodeSelector", "nodeSelectorTerms", "matchFields", "sharedCounters", "counters", "consumesCounters"]

NAMES += ["allocation", "results", "reservedFor", "deviceSelector", "driver", "allowMultipleAllocations", "count"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=25,
)


@given(kind=st.sampled_from(sorted(KINDS)), obj=st.dictionaries(st.sampled_from(NAMES[:3]), JSON))
def test_validating_any_json_gives_nothing_but_problems(kind: str, obj: Json) -> None:
    found = validation.problems(kind, obj, compatibility.profile(Release.V1_37))

    assert all(problem.field and problem.message for problem in found)
