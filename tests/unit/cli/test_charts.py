"""What the lines of a chart are made of."""

from collections import Counter
from datetime import timedelta

import pytest

from admission.cli.simulate import charts
from admission.simulation.replay.player import Policy, ReplayResult, Sample


def play(*moments: tuple[float, int]) -> ReplayResult:
    made = tuple(Sample(timedelta(hours=at), Counter(), waiting) for at, waiting in moments)
    return ReplayResult(policy=Policy.MUSTER, jobs=(), samples=made, devices=Counter())


def waiting(found: ReplayResult) -> list[tuple[float, float]]:
    return charts.points(found, lambda moment: moment.waiting)


def test_each_point_is_the_mean_of_its_time() -> None:
    half = 1 / charts.POINTS / 2

    found = waiting(play((0, 4), (half, 8), (1, 0)))

    assert len(found) == charts.POINTS
    assert found[0][0] == pytest.approx(half)
    assert [value for _, value in found[:2]] == pytest.approx([6.0, 8.0])
    assert sum(value for _, value in found) / len(found) == pytest.approx(4 * half + 8 * (1 - half))


def test_a_chart_of_a_trace_without_duration_has_a_single_point() -> None:
    assert waiting(play((2, 3))) == [(2.0, 3)]
    assert waiting(play()) == []
