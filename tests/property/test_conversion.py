"""Manifests with anything in any place are converted without an error, and once is enough."""

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, strategies as st

from admission.conversion import manifests
from admission.conversion.findings import Level

UNIT = Path(__file__).parents[1] / "unit"
CONVERTED = yaml.safe_load((UNIT / "conversion" / "converted.yaml").read_text())
LEFT = yaml.safe_load((UNIT / "conversion" / "left.yaml").read_text())
GOOD = [*(one for case in CONVERTED.values() for one in case["before"]), *(case["object"] for case in LEFT.values())]
JUNK: list[Any] = [None, True, 0, -1.5, "", "x", [], {}, [1], {"a": 1}, [[]], ["x", None], {"requests": 7}]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place within a value, as what has it and its key."""
    keys = [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


@st.composite
def objects(draw: st.DrawFn) -> Any:
    obj = copy.deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 3))):
        owner, key = draw(st.sampled_from(_places(obj)))
        if not (owner is obj and key in ("apiVersion", "kind")):
            owner[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return obj


@given(st.lists(objects(), min_size=1, max_size=3))
def test_whatever_stands_in_a_manifest_is_converted_once(found: list[Any]) -> None:
    manifests.convert(found)
    written = copy.deepcopy(found)

    again = manifests.convert(found)

    assert found == written
    assert all(one.level is not Level.CHANGED for conversion in again for one in conversion.findings)
