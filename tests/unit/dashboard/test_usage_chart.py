"""The chart of device-hours: its axis, and how groups share a column."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from admission.dashboard import usage_chart
from admission.dashboard.ledger_queries import Use, Window

HOUR = 3_600
START = datetime(2026, 11, 1, tzinfo=UTC)


def used(**amounts: list[int]) -> Use:
    """Return the use of as many days as there are amounts, in device-seconds."""
    days = [START + timedelta(days=number) for number in range(len(next(iter(amounts.values()))))]
    return Use(periods=[Window(day, day + timedelta(days=1)) for day in days], amounts=amounts)


@pytest.mark.parametrize("hours", [0, 1, 2, 3, 5, 6, 11, 24, 99, 1_000, 123_456])
def test_the_axis_is_marked_at_round_numbers_of_hours_up_to_the_largest_column(hours: int) -> None:
    chart = usage_chart.chart(used(vision=[hours * HOUR, 0]))

    marks = [Fraction(mark.text) for mark in chart.marks_y]
    step = marks[1]
    assert marks == [step * number for number in range(len(marks))]
    assert marks[-1] >= hours
    assert [mark.at for mark in chart.marks_y] == sorted((mark.at for mark in chart.marks_y), reverse=True)


def test_a_column_is_as_high_as_its_groups_together() -> None:
    chart = usage_chart.chart(used(vision=[2 * HOUR, HOUR], nlp=[3 * HOUR, 0]))

    heights: dict[float, float] = {}
    for bar in chart.bars:
        heights[bar.x] = heights.get(bar.x, 0.0) + bar.height
    first, second = (heights[x] for x in sorted(heights))
    assert first / second == pytest.approx(5)
    assert chart.total == 6 * HOUR


def test_more_groups_than_colours_are_drawn_together() -> None:
    chart = usage_chart.chart(used(**{f"team-{number}": [HOUR] for number in range(usage_chart.SERIES + 3)}))

    assert [group.name for group in chart.groups][-1] == "all others (3)"
    assert chart.groups[-1].total == 3 * HOUR


def test_a_group_that_is_left_out_is_not_drawn_and_the_others_keep_their_colours() -> None:
    use = used(vision=[4 * HOUR], nlp=[2 * HOUR], speech=[HOUR], **{"": [HOUR // 2]})
    chart = usage_chart.chart(use, top=2, hidden=["vision", usage_chart.OTHERS])

    assert [(group.name, group.series, group.shown) for group in chart.groups] == [
        ("vision", 0, False),
        ("nlp", 1, True),
        ("all others (2)", usage_chart.SERIES, False),
    ]
    assert {bar.series for bar in chart.bars} == {1}
    assert chart.marks_y[-1].text == "2"
    assert chart.total == 7 * HOUR + HOUR // 2


@pytest.mark.parametrize("width", [usage_chart.WIDTH, usage_chart.HALF])
def test_labels_of_times_neither_overlap_nor_leave_the_drawing(width: int) -> None:
    hours = [START + timedelta(hours=number) for number in range(25)]
    day = Use(periods=[Window(hour, hour + timedelta(hours=1)) for hour in hours], amounts={"vision": [HOUR] * 25})

    marks = usage_chart.chart(day, width=width).marks_x

    ends = [mark.at + 6 * len(mark.text) for mark in marks]
    assert len(marks) >= 3
    assert ends[-1] <= width
    assert all(end < following.at for end, following in zip(ends, marks[1:], strict=False))
