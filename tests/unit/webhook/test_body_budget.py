"""The budget for bodies: what is reserved, what is refused, and who gives way."""

from dataclasses import dataclass, field

import pytest

from admission.webhook.body_budget import FIRST_BYTES, PROMPT, Body, BodyBudget
from admission.webhook.refusals import Refusal

MIB = 2**20


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Setting:
    """A budget of 4 MiB for three bodies of up to 2 MiB."""

    clock: Clock = field(default_factory=Clock)
    budget: BodyBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = BodyBudget(most_bytes=4 * MIB, most_bodies=3, largest=2 * MIB, clock=self.clock)

    def admitted(self, declared: int | None = None) -> Body:
        body = self.budget.admit(declared)
        assert isinstance(body, Body)
        return body


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_body_is_whole_and_stays_reserved_until_it_is_released(setting: Setting) -> None:
    body = setting.admitted(10)

    assert (body.add(b"hello "), body.add(b"you!")) == (None, None)
    assert body.finish() == b"hello you!"

    assert (len(setting.budget), setting.budget.reserved) == (1, 10)
    setting.budget.release(body)
    setting.budget.release(body)
    assert (len(setting.budget), setting.budget.reserved) == (0, 0)


def test_a_body_that_declares_too_much_is_refused_before_it_is_read(setting: Setting) -> None:
    assert setting.budget.admit(2 * MIB + 1) is Refusal.SIZE
    assert isinstance(setting.budget.admit(2 * MIB), Body)


def test_a_body_that_grows_too_large_is_refused_and_its_room_is_free(setting: Setting) -> None:
    body = setting.admitted()

    assert body.add(b" " * 2 * MIB) is None
    assert body.add(b" ") is Refusal.SIZE

    assert (len(setting.budget), setting.budget.reserved) == (0, 0)
    assert body.add(b"more") is Refusal.SIZE


def test_announcing_much_reserves_little(setting: Setting) -> None:
    body = setting.admitted(2 * MIB)

    assert setting.budget.reserved == FIRST_BYTES
    body.add(b" " * 3 * FIRST_BYTES)
    assert setting.budget.reserved == 3 * FIRST_BYTES


def test_while_others_are_young_a_new_body_is_refused(setting: Setting) -> None:
    young = [setting.admitted(1) for _ in range(3)]
    setting.clock.now += PROMPT / 2

    assert setting.budget.admit(1) is Refusal.REVIEWS
    assert [body.refusal for body in young] == [None] * 3


def test_the_oldest_body_that_is_slow_gives_way_to_a_new_one(setting: Setting) -> None:
    cut: list[str] = []
    first, second = setting.admitted(1), setting.admitted(1)
    first.on_cut(lambda: cut.append("first"))
    setting.clock.now += PROMPT
    third = setting.admitted(1)

    assert isinstance(setting.budget.admit(1), Body)

    assert cut == ["first"]
    assert [body.refusal for body in (first, second, third)] == [Refusal.REVIEWS, None, None]
    assert first.add(b"late") is Refusal.REVIEWS


def test_a_body_that_is_whole_gives_way_to_nobody(setting: Setting) -> None:
    bodies = [setting.admitted(1) for _ in range(3)]
    for body in bodies:
        body.add(b"x")
        body.finish()
    setting.clock.now += 60

    assert setting.budget.admit(1) is Refusal.REVIEWS


def test_where_bytes_are_lacking_a_slow_body_gives_way_and_else_the_growing_one_is_refused(setting: Setting) -> None:
    slow, other = setting.admitted(2 * MIB), setting.admitted(2 * MIB)
    assert (slow.add(b" " * 2 * MIB), other.add(b" " * MIB)) == (None, None)
    late = setting.admitted(2 * MIB)
    assert late.add(b" " * (MIB + 1)) is Refusal.BYTES
    assert setting.budget.admit(2 * MIB) is not Refusal.BYTES
    setting.clock.now += PROMPT

    assert other.add(b" " * MIB) is None
    assert slow.refusal is Refusal.BYTES
