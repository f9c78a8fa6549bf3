"""Rows of a trace become jobs, and what is wrong with them is told with line and field."""

from datetime import timedelta
from typing import Any

import pytest

from admission.api import traces
from admission.api.traces import Row, Trace


def read(*rows: Any) -> Trace:
    return traces.decode(Row(at, row) for at, row in enumerate(rows, 1))


def row(**more: Any) -> dict[str, Any]:
    return {"queue": "team", "arrival": 0, "runtime": 60, "claims": [{"class": "gpu", "count": 2}], **more}


def told(*rows: Any) -> list[str]:
    return [f"{line}: {problem}" for line, problem in read(*rows).problems]


def test_a_row_says_what_each_pod_asks_for_and_for_how_long() -> None:
    asked = row(name="train", pods=4, priority=7, requests={"cpu": "8", "memory": "1Gi"}, topology="rack")

    (job,) = read(asked).arrivals

    assert (job.name, job.queue, job.pods, job.priority) == ("train", "team", 4, 7)
    assert (job.at, job.runtime) == (timedelta(0), timedelta(seconds=60))
    assert job.pod_requests.requests == {"pods": 1, "cpu": 8000, "memory": 2**30}
    assert job.pod_requests.topology == "rack"
    (request,) = job.pod_requests.claims[0].requests
    assert (request.alternatives[0].device_class, request.alternatives[0].count) == ("gpu", 2)


def test_a_claim_may_be_written_in_full() -> None:
    devices = {"requests": [{"name": "any", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}

    (job,) = read(row(claims=[{"devices": devices}])).arrivals

    assert job.pod_requests.claims[0].requests[0].alternatives[0].mode == "All"


def test_jobs_of_a_trace_with_equal_requests_share_the_requests() -> None:
    one, two, other = read(row(), row(), row(claims=[])).arrivals

    assert one.pod_requests is two.pod_requests
    assert other.pod_requests is not one.pod_requests


def test_jobs_without_a_name_are_called_by_their_line_and_come_in_order_of_time() -> None:
    found = read(row(arrival=30), row(arrival="10s"), row(arrival=20.5))

    assert [(job.name, job.at.total_seconds()) for job in found.arrivals] == [
        ("job-2", 10.0),
        ("job-3", 20.5),
        ("job-1", 30.0),
    ]


def test_a_job_says_the_truth_of_its_runtime_unless_the_trace_has_something_else() -> None:
    found = read(row(), row(declared="2h"), row(declared=30), row(declared="none")).arrivals

    assert [job.declared and job.declared.total_seconds() for job in found] == [60, 7200, 30, None]


def test_times_of_day_count_from_the_earliest() -> None:
    found = read(row(arrival="2026-01-31T13:00:00+01:00"), row(arrival="2026-01-31T12:00:05Z"))

    assert [job.at for job in found.arrivals] == [timedelta(0), timedelta(seconds=5)]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no queue": ({"queue": ""}, "1: queue: is required"),
    "a runtime of nothing": ({"runtime": 0}, "1: runtime: must be longer than nothing"),
    "a runtime of a century": ({"runtime": "876000h"}, "1: runtime: '876000h' is not between 0 and 3650 days"),
    "a runtime without end": ({"runtime": float("inf")}, "1: runtime: 'inf' is not between 0 and 3650 days"),
    "a runtime below nothing": ({"runtime": -5}, "1: runtime: '-5' is not between 0 and 3650 days"),
    "no runtime": ({"runtime": None}, "1: runtime: is required"),
    "nothing declared": ({"declared": 0}, "1: declared: must be longer than nothing"),
    "a guess": ({"declared": "long"}, "1: declared: 'long' is not a duration"),
    "no arrival": ({"arrival": None}, "1: arrival: is required"),
    "words for a time": ({"arrival": "soon"}, "1: arrival: 'soon' is not a duration"),
    "a time of day without a zone": ({"arrival": "2026-01-31T12:00:00"}, "has no time zone"),
    "no pods": ({"pods": 0}, "1: pods: is 0, it must be from 1 to 10000"),
    "half a pod": ({"pods": 0.5}, "1: pods: is a number, an integer is expected"),
    "an unknown field": ({"gpus": 8}, "1: gpus: is no field of a trace; known are name, queue"),
    "an unknown field of a claim": ({"claims": [{"class": "gpu", "gpus": 8}]}, "1: claims[0].gpus: is no field"),
    "a claim without a class": ({"claims": [{"count": 1}]}, "1: claims[0].class: is required"),
    "a claim of nothing": ({"claims": [{"class": "gpu", "count": 0}]}, "1: claims[0].count: is 0"),
    "a class that cannot be": ({"claims": [{"class": "GPU!"}]}, "1: claims[0].class: "),
    "an amount that is none": ({"requests": {"cpu": "many"}}, "1: requests.cpu: 'many' is not"),
    "an amount below nothing": ({"requests": {"cpu": "-100"}}, "1: requests.cpu: is less than nothing"),
    "a label that cannot be": ({"topology": "one rack"}, "1: topology: 'one rack' is not a label's key"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_problem_of_a_trace_is_reported_with_line_and_field(change: dict[str, Any], message: str) -> None:
    assert any(message in text for text in told(row(**change))), told(row(**change))


def test_all_problems_of_a_trace_are_reported_at_once() -> None:
    assert [text.split(":")[0] for text in told(row(runtime=0), "nonsense", row(), row(pods=0))] == [
        "1",
        "2",
        "2",
        "2",
        "2",
        "4",
    ]


def test_a_trace_with_two_jobs_of_one_name_is_refused() -> None:
    assert told(row(name="a"), row(name="a")) == ["2: name: 'a' is the name of the job in line 1, too"]


def test_times_of_day_and_seconds_do_not_mix() -> None:
    assert "2: arrival: is no time of day as others" in told(row(arrival="2026-01-31T12:00:00Z"), row(arrival=5))[0]


def test_a_line_of_csv_says_the_same_as_an_object() -> None:
    cells = {"queue": "team", "arrival": "0", "runtime": "1.5", "pods": "2", "class": "gpu", "count": "2"}
    more = {"selector": "device.driver == 'gpu.example.com'", "cpu": "8", "memory": "", "priority": "-1", "note": "x"}

    assert traces.from_columns({**cells, **more}) == {
        "queue": "team",
        "arrival": 0,
        "runtime": 1.5,
        "pods": 2,
        "priority": -1,
        "note": "x",
        "requests": {"cpu": "8"},
        "claims": [{"class": "gpu", "count": 2, "selectors": ["device.driver == 'gpu.example.com'"]}],
    }
