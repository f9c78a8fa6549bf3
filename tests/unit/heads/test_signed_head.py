"""The bytes that are signed, and heads as JSON."""

from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from admission.errors import FixError
from admission.heads import key_history, signed_head
from admission.heads.signed_head import MOST_RANGES, Cause
from tests.unit.heads.builders import AT, RING, a_head, a_signed_head

GOLDEN = (
    '["muster.dev/signed-head/v1","ost-ä",3,7,"7902699be42c8a8e46fbbb4501726517e86b22c56a189f7625a6da49081b2451",'
    '"2026-03-01T12:00:00.000000+00:00","foreign",[[2,3],[5,5]],"0123456789abcdef"]'
)


def test_the_signed_bytes_do_not_change_between_releases() -> None:
    """Heads are kept for years; if this fails, none of them can be checked any more."""
    head = a_head(epoch=3, cluster="ost-ä", cause=Cause.FOREIGN, foreign=((2, 3), (5, 5)))

    assert signed_head.signed_bytes(head, "0123456789abcdef") == GOLDEN.encode()


def test_the_signed_bytes_cover_every_field() -> None:
    head = a_head()
    others = [
        replace(head, cluster="west"),
        replace(head, epoch=2),
        replace(head, sequence=8),
        replace(head, digest="0" * 64),
        replace(head, at=AT + timedelta(microseconds=1)),
        replace(head, cause=Cause.MARK),
        replace(head, foreign=((1, 1),)),
    ]

    assert len(others) == len(head.__slots__)
    assert len({signed_head.signed_bytes(one, "k") for one in (head, *others)}) == len(others) + 1
    assert signed_head.signed_bytes(head, "k") != signed_head.signed_bytes(head, "l")


def test_the_same_moment_in_another_zone_is_signed_alike() -> None:
    elsewhere = replace(a_head(), at=AT.astimezone(timezone(timedelta(hours=5))))

    assert signed_head.signed_bytes(elsewhere, "k") == signed_head.signed_bytes(a_head(), "k")


MALFORMED = {
    "a digest that is none": {"digest": "abc"},
    "a number below zero": {"sequence": -1},
    "a number that is too large": {"epoch": 2**63},
    "a time without a zone": {"at": "2026-03-01T12:00:00"},
    "a time that is none": {"at": "noon"},
    "a cause that does not exist": {"cause": "mood"},
    "a signature that is not base64": {"signature": "%"},
    "a key that is none": {"key": "K"},
    "too many ranges": {"foreign": [[1, 1]] * (MOST_RANGES + 1)},
}


@pytest.mark.parametrize("changes", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_head_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(FixError, match="it is no signed head"):
        signed_head.from_json({**signed_head.to_json(a_signed_head()), **changes})


def test_many_ranges_become_as_many_as_a_head_has() -> None:
    ranges = [(2 * number, 2 * number) for number in range(MOST_RANGES + 50)]

    capped = signed_head.capped(ranges)

    assert len(capped) == MOST_RANGES
    assert capped[:-1] == tuple(ranges[: MOST_RANGES - 1])
    assert capped[-1] == (ranges[MOST_RANGES - 1][0], ranges[-1][1])
    assert key_history.sign(a_head(foreign=capped), RING).head.foreign == capped
