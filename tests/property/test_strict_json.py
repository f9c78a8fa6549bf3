"""JSON that is written is read again, and a second key is always seen."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from admission.api.values import strict_json
from admission.errors import JsonError

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(VALUES, st.booleans())
def test_whatever_is_written_is_read_again(value: Any, ascii_only: bool) -> None:
    assert strict_json.decode(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, min_size=1), VALUES, st.data())
def test_no_key_that_is_added_a_second_time_goes_unseen(obj: dict[str, Any], value: Any, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(obj)))
    written = json.dumps(obj, ensure_ascii=data.draw(st.booleans()))
    again = f"{json.dumps(key, ensure_ascii=data.draw(st.booleans()))}:{json.dumps(value)}"

    with pytest.raises(JsonError, match="twice"):
        strict_json.decode(f"{{{again},{written[1:]}".encode())
