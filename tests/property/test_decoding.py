"""Whatever objects hold, decoding and validating find problems and raise nothing else."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from admission.errors import MalformedObjectError
from tests.unit.api.test_decoding import DECODERS

NAMES = [
    "metadata",
    "spec",
    "status",
    "devices",
    "requests",
    "exactly",
    "allocatable",
    "containers",
    "resources",
    "config",
]

NAMES += ["quotas", "sources", "allocation", "results", "labels", "ownerReferences", "name", "selectors", "capacity"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
@given(obj=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON))
def test_decoding_any_json_raises_nothing_but_problems(decode: Callable[[Any], object], obj: dict[str, Any]) -> None:
    with contextlib.suppress(MalformedObjectError):
        assert decode(obj) is not None
