"""Whatever bodies come, the budget for them is kept."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from admission.webhook.body_budget import FIRST_BYTES, PROMPT, Body
from tests.unit.webhook.test_body_budget import MIB, Setting


class Bodies(RuleBasedStateMachine):
    """Whatever comes, no more is reserved than may be, and the counts are those of the bodies that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.setting = Setting()
        self.bodies: list[Body] = []

    @rule(declared=st.none() | st.integers(0, 3 * MIB))
    def admit(self, declared: int | None) -> None:
        body = self.setting.budget.admit(declared)
        if isinstance(body, Body):
            self.bodies.append(body)

    @rule(which=st.integers(0, 9), size=st.sampled_from([0, 1, FIRST_BYTES, MIB, 2 * MIB]))
    def add(self, which: int, size: int) -> None:
        if self.bodies:
            body = self.bodies[which % len(self.bodies)]
            body.add(bytes(size))

    @rule(which=st.integers(0, 9), finished=st.booleans())
    def end(self, which: int, finished: bool) -> None:
        if self.bodies:
            body = self.bodies.pop(which % len(self.bodies))
            if finished and body.refusal is None:
                assert len(body.finish()) == body.size
            self.setting.budget.release(body)

    @rule(seconds=st.floats(0, PROMPT))
    def wait(self, seconds: float) -> None:
        self.setting.clock.now += seconds

    @invariant()
    def the_bounds_hold(self) -> None:
        budget = self.setting.budget
        alive = [body for body in self.bodies if body.refusal is None]
        assert len(budget) == len(alive) <= 3
        assert budget.reserved == sum(body.reserved for body in alive) <= 4 * MIB
        assert all(body.size <= max(body.reserved, 0) <= max(2 * MIB, FIRST_BYTES) for body in alive)


TestBodies = Bodies.TestCase
