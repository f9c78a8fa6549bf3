"""Keys over time: rotation, history, and which signatures count."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from admission.errors import FixError
from admission.heads import key_history
from admission.heads.key_history import CLOCK_SKEW, MOST_KEYS, PRIVATE, PUBLIC
from tests.unit.heads.builders import AT, RING, a_head, a_signed_head

LIFETIME = timedelta(days=90)


def test_a_key_signs_until_it_is_old_and_its_public_part_stays() -> None:
    first = key_history.rotated(None, (), lifetime=LIFETIME, now=AT)
    same = key_history.rotated(first, (), lifetime=LIFETIME, now=AT + LIFETIME - timedelta(seconds=1))
    second = key_history.rotated(same, (), lifetime=LIFETIME, now=AT + LIFETIME)

    assert same == first
    assert [(key.since, key.until) for key in second.keys] == [(AT, AT + LIFETIME), (AT + LIFETIME, None)]
    assert second.keys[0].raw == first.keys[0].raw
    old = key_history.sign(a_head(at=AT + timedelta(days=1)), first)
    assert key_history.problem(old, second.keys) is None
    assert key_history.problem(key_history.sign(a_head(at=AT + LIFETIME), second), second.keys) is None


def test_a_key_whose_secret_was_deleted_stays_in_the_history_that_was_published() -> None:
    first = key_history.rotated(None, (), lifetime=LIFETIME, now=AT)
    second = key_history.rotated(None, first.keys, lifetime=LIFETIME, now=AT + timedelta(days=1))

    assert [key.id for key in second.keys] == [first.keys[0].id, second.keys[-1].id]
    assert second.keys[0].until == AT + timedelta(days=1)
    assert key_history.rotated(second, first.keys, lifetime=LIFETIME, now=AT + timedelta(days=2)) == second


def test_a_history_is_bounded() -> None:
    ring = None
    for day in range(5):
        ring = key_history.rotated(ring, (), lifetime=timedelta(days=1), now=AT + timedelta(days=day))
    assert ring is not None
    many = [replace(RING.keys[0], raw=bytes([i % 256, i // 256]) + RING.keys[0].raw[2:]) for i in range(MOST_KEYS + 9)]

    assert len(key_history.rotated(ring, many, lifetime=LIFETIME, now=AT).keys) == MOST_KEYS


def test_the_secret_is_read_as_written() -> None:
    entries = key_history.to_secret(RING)

    read = key_history.from_secret(entries)

    assert read.keys == RING.keys
    assert key_history.sign(a_head(), read) == key_history.sign(a_head(), RING)
    assert b"PRIVATE KEY" in entries[PRIVATE]
    assert b"PRIVATE" not in entries[PUBLIC]


def another_secret() -> dict[str, bytes]:
    return key_history.to_secret(key_history.rotated(None, (), lifetime=LIFETIME, now=AT))


BROKEN = {
    "no entries": {},
    "no private key": {PUBLIC: key_history.to_secret(RING)[PUBLIC]},
    "a private key that is none": {**key_history.to_secret(RING), PRIVATE: b"x"},
    "the private key of another history": {**key_history.to_secret(RING), PRIVATE: another_secret()[PRIVATE]},
    "a history that is no JSON": {**key_history.to_secret(RING), PUBLIC: b"{"},
    "a history without keys": {**key_history.to_secret(RING), PUBLIC: b"[]"},
}


@pytest.mark.parametrize("entries", BROKEN.values(), ids=BROKEN)
def test_a_secret_that_is_broken_is_named(entries: dict[str, bytes]) -> None:
    with pytest.raises(FixError, match=r"private\.pem"):
        key_history.from_secret(entries)


def test_a_public_key_that_is_not_the_one_of_its_id_is_refused() -> None:
    [document] = json.loads(key_history.to_secret(RING)[PUBLIC])

    with pytest.raises(FixError, match="each has id, public, since and until"):
        key_history.from_json([{**document, "id": "0" * 16}])


def test_a_signature_counts_for_its_head_key_and_time_alone() -> None:
    signed = a_signed_head()
    key = RING.keys[0]

    def problem(**changes: object) -> str:
        return key_history.problem(replace(signed, **changes), RING.keys) or ""  # type: ignore[arg-type]

    assert key_history.problem(signed, RING.keys) is None
    assert "is not signed by the key" in problem(head=replace(signed.head, sequence=8))
    assert "is not signed by the key" in problem(signature=b"\0" * 64)
    assert "is not signed by the key" in problem(signature=b"short")
    assert "no key of the history" in problem(key="0" * 16)
    ended = replace(key, until=AT - CLOCK_SKEW - timedelta(seconds=1))
    assert "was in use from" in (key_history.problem(signed, [ended]) or "")
    assert key_history.problem(signed, [replace(key, until=AT - CLOCK_SKEW)]) is None
    assert "was in use from" in (key_history.problem(signed, [replace(key, since=AT + timedelta(hours=1))]) or "")
