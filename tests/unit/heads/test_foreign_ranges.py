"""What of another client's entries nobody has accepted."""

import pytest

from admission.heads import signed_head
from admission.heads.signed_head import Range

FOREIGN: set[Range] = {(3, 7), (9, 9)}
ACCEPTED: dict[str, tuple[list[Range], list[Range]]] = {
    "nothing": ([], [(3, 7), (9, 9)]),
    "the beginning": ([(1, 4)], [(5, 7), (9, 9)]),
    "the middle": ([(5, 5)], [(3, 4), (6, 7), (9, 9)]),
    "the end, and what touches no range": ([(7, 7), (8, 8)], [(3, 6), (9, 9)]),
    "all, by ranges that overlap": ([(3, 6), (5, 9)], []),
}


@pytest.mark.parametrize(("accepted", "left"), ACCEPTED.values(), ids=ACCEPTED)
def test_of_foreign_ranges_is_left_what_is_in_no_accepted_one(accepted: list[Range], left: list[Range]) -> None:
    assert [*signed_head.not_accepted(FOREIGN, accepted)] == left
