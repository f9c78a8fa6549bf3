"""What the patterns of the CRDs accept, the decoders read."""

import re
from decimal import Decimal

from hypothesis import given, strategies as st

from admission.api.schemas import fields
from admission.api.values import durations, quantities


@given(st.from_regex(fields.STEP, fullmatch=True))
def test_every_step_that_the_schema_accepts_is_a_whole_number_of_thousandths(text: str) -> None:
    assert quantities.parse(text) * 1000 % 1 == 0
    assert quantities.parse(text) > 0


@given(st.from_regex(fields.WHOLE, fullmatch=True))
def test_every_amount_that_the_schema_accepts_is_whole(text: str) -> None:
    assert quantities.parse(text) * 10**18 % 1 == 0


@given(st.from_regex(fields.HOURS, fullmatch=True))
def test_all_hours_that_the_schema_accepts_are_a_quantity(text: str) -> None:
    assert quantities.parse(text) * 10**9 % 1 == 0


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**15, places=4))
def test_the_schema_and_the_decoder_agree_which_hours_are_whole_seconds(hours: Decimal) -> None:
    """The rule of the schema is a pattern, since CEL cannot multiply quantities."""
    rule = re.compile(fields.STEPS_OF_HOURS)
    texts = {f"{hours:f}", f"{hours:f}".rstrip("0"), f"{hours * 1000:.0f}m"}

    for text in texts:
        whole = quantities.parse(text) * 3600 % 1 == 0
        assert whole == bool(rule.search(text))


@given(st.from_regex(fields.DECIMAL, fullmatch=True))
def test_every_weight_that_the_schema_accepts_is_a_quantity(text: str) -> None:
    assert quantities.parse(text) >= 0


@given(st.from_regex(fields.DURATION, fullmatch=True))
def test_every_duration_that_the_schema_accepts_is_parsed(text: str) -> None:
    assert durations.parse(text).days < 365 * 50
