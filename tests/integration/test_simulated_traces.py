"""`muster simulate --arrivals`: what is read, what is printed, and how it ends."""

import csv
import json
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.unit.cli.conftest import Muster
from tests.unit.simulation.simulated import job, node, teams
from tests.unit.simulation.test_shapes import shape

ROWS = [
    {"name": "a", "queue": "team", "arrival": 0, "runtime": "10s", "claims": [{"class": "gpu"}]},
    {"name": "large", "queue": "team", "arrival": 1, "runtime": 10, "claims": [{"class": "gpu", "count": 2}]},
    {"name": "small", "queue": "team", "arrival": 2, "runtime": 3, "claims": [{"class": "gpu"}]},
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([*teams(quota=2), *node("one", 4)]))
    return str(path)


def lines(folder: Path, *rows: Any) -> str:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_the_tables_show_both_policies_side_by_side(muster: Muster, place: str, tmp_path: Path) -> None:
    done = muster("simulate", place, "--arrivals", lines(tmp_path, *ROWS), "--compare", "fifo-count")

    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    headings = "QUEUE POLICY JOBS STARTED WAIT MEAN P50 P95 P99 LONGEST SLOWDOWN DEVICE-HOURS SERVED"
    assert " ".join(table[1].split()) == headings
    assert table[2].split()[:9] == ["team", "muster", "3", "3", "3s", "0s", "9s", "9s", "9s"]
    assert table[3].split()[:9] == ["team", "fifo-count", "3", "3", "9s", "9s", "18s", "18s", "18s"]
    assert [line.split()[0] for line in table[4:6]] == ["all", "all"]
    assert table[7] == "Cluster"
    assert table[9].split()[:3] == ["muster", "gpu.example.com", "4"]


def test_the_json_has_the_documented_fields(muster: Muster, place: str, tmp_path: Path) -> None:
    done = muster("simulate", place, "--arrivals", lines(tmp_path, *ROWS), "--format", "json")

    answer = json.loads(done.stdout)
    assert answer["jobs"] == 3
    (result,) = answer["results"]
    assert result["policy"] == "muster"
    assert result["makespanSeconds"] == 20.0
    assert result["fairness"] == 1.0
    assert result["unstarted"] == []
    assert result["utilisation"]["gpu.example.com"]["devices"] == 4
    assert result["utilisation"]["gpu.example.com"]["whileJobsArrive"] == pytest.approx(2 / 8)
    assert result["queues"]["team"] == result["all"]
    assert result["all"]["waitSeconds"] == {"mean": 3.0, "p50": 0.0, "p95": 9.0, "p99": 9.0, "longest": 9.0}
    assert result["all"]["started"] == 3


def test_a_trace_in_csv_is_simulated_like_one_in_json_lines(muster: Muster, place: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "name,queue,arrival,runtime,class,count\na,team,0,10s,gpu,1\nlarge,team,1,10,gpu,2\n\nsmall,team,2,3,gpu,\n"
    )

    by_lines = muster("simulate", place, "--arrivals", lines(tmp_path, *ROWS), "-o", "json")

    assert muster("simulate", place, "--arrivals", str(path), "-o", "json").stdout == by_lines.stdout


def test_jobs_that_never_start_are_listed_and_make_the_exit_code(muster: Muster, place: str, tmp_path: Path) -> None:
    never = {**ROWS[1], "claims": [{"class": "gpu", "count": 3}]}

    done = muster("simulate", place, "--arrivals", lines(tmp_path, ROWS[0], never))

    assert done.returncode == 3
    assert "Jobs that never start (muster)" in done.stdout
    assert "large  team   Held      QuotaExceeded: queue team" in done.stdout


def test_a_problem_of_a_trace_file_is_reported_with_file_line_and_field(
    muster: Muster, place: str, tmp_path: Path
) -> None:
    path = lines(tmp_path, ROWS[0], {**ROWS[1], "runtime": 0}, {**ROWS[2], "gpus": 1})
    Path(path).write_text(Path(path).read_text() + "{nonsense\n")

    done = muster("simulate", place, "--arrivals", path)

    assert done.returncode == 2
    assert f"{path}:2: runtime: must be longer than nothing" in done.stderr
    assert f"{path}:3: gpus: is no field of a trace" in done.stderr
    assert f"{path}:4: .: is no JSON" in done.stderr


@pytest.fixture
def limit() -> Iterator[int]:
    """The characters of a cell, which belong to the process: libraries may set them."""
    before = csv.field_size_limit(131_072)
    yield 131_072
    csv.field_size_limit(before)


def test_an_unreadable_line_of_a_trace_is_reported_with_its_number(
    muster: Muster, place: str, tmp_path: Path, limit: int
) -> None:
    deep, long = tmp_path / "deep.jsonl", tmp_path / "long.csv"
    deep.write_text("[" * 100_000)
    long.write_text(f"name,queue\n{'a' * (limit + 1)},q\n")

    for path, told in ((deep, ":1: .: is no JSON"), (long, ":1: .: is no line of a table")):
        done = muster("simulate", place, "--arrivals", str(path))

        assert done.returncode == 2
        assert f"{path}{told}" in done.stderr


def test_of_many_problems_of_a_trace_some_are_reported(muster: Muster, place: str, tmp_path: Path) -> None:
    done = muster("simulate", place, "--arrivals", lines(tmp_path, *({"queue": "team"} for _ in range(30))))

    assert done.returncode == 2
    assert "and 40 more" in done.stderr


def test_a_trace_that_needs_what_the_cluster_lacks_is_refused(muster: Muster, place: str, tmp_path: Path) -> None:
    path = lines(tmp_path, ROWS[0], {**ROWS[1], "queue": "nobody"})

    done = muster("simulate", place, "--arrivals", path)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}:2: queue: there is no Queue nobody in the input" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compare", "fifo-count"], "--compare is about a trace; add --arrivals FILE"),
        (["--now", "9999-12-31T00:00:00Z"], "leaves no time before or after it"),
        (["--now", "0001-01-01T00:00:00Z"], "leaves no time before or after it"),
        (["--chart", "x.svg"], "--chart is about a trace; add --arrivals FILE"),
        (["--arrivals", "nowhere.jsonl", "--until-empty"], "--until-empty is without times"),
        (["--arrivals", "nowhere.jsonl"], "--arrivals nowhere.jsonl: No such file or directory"),
    ],
)
def test_options_that_make_no_sense_are_refused(muster: Muster, place: str, words: list[str], message: str) -> None:
    done = muster("simulate", place, *words)

    assert done.returncode == 2
    assert message in done.stderr


def test_a_string_of_json_may_hold_what_unicode_ends_lines_with(muster: Muster, place: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({**ROWS[0], "name": "a\u2028b\u0085c"}, ensure_ascii=False) + "\r\n", encoding="utf-8")

    done = muster("simulate", place, "--arrivals", str(path))

    assert done.returncode == 0, done.stderr


def test_a_trace_with_a_repeated_column_heading_is_refused(muster: Muster, place: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("queue,arrival,runtime,class,class\nteam,0,10,gpu,nic\n")

    done = muster("simulate", place, "--arrivals", str(path))

    assert done.returncode == 2
    assert f"{path}:1: class: is the heading of more than one column" in done.stderr


def test_a_trace_that_goes_on_for_too_long_is_refused(muster: Muster, place: str, tmp_path: Path) -> None:
    path = lines(tmp_path, {**ROWS[0], "runtime": "87600h"})

    done = muster("simulate", place, "--arrivals", path, "--now", "9998-12-31T00:00:00Z")

    assert done.returncode == 2
    assert "goes on beyond the year 9999" in done.stderr


def test_the_served_share_is_empty_where_no_time_passes(muster: Muster, place: str, tmp_path: Path) -> None:
    """All come at once and none starts: no time passes that anything could be measured in."""
    path = lines(tmp_path, {**ROWS[0], "claims": [{"class": "gpu", "count": 3}]})

    done = muster("simulate", place, "--arrivals", path)
    told = json.loads(muster("simulate", place, "--arrivals", path, "-o", "json").stdout)

    assert done.stdout.splitlines()[2].split()[-1] == "-"
    assert told["results"][0]["all"]["served"] is None


def test_an_empty_trace_is_refused(muster: Muster, place: str, tmp_path: Path) -> None:
    done = muster("simulate", place, "--arrivals", lines(tmp_path))

    assert done.returncode == 2
    assert "has no jobs" in done.stderr


def test_input_objects_that_a_replay_ignores_are_noted(muster: Muster, tmp_path: Path) -> None:
    first, *rest = teams(quota=2)
    budget = {"meter": "gpus", "hours": 1, "period": "Day"}
    path = tmp_path / "cluster.yaml"
    path.write_text(
        yaml.safe_dump_all(
            [
                {**first, "spec": {**first["spec"], "budgets": [budget], "maxRuntime": "1h"}},
                *rest,
                *node("n", 4),
                *job("waits"),
            ]
        )
    )

    done = muster("simulate", str(path), "--arrivals", lines(tmp_path, *ROWS))

    assert done.returncode == 0, done.stderr
    assert "gangs of the input that wait take no part: default/waits" in done.stderr
    assert "budgets are not played" in done.stderr
    assert "maxRuntime is not played" in done.stderr


class Tomorrow(date):
    """Another day than the one on which a chart was drawn first."""

    @classmethod
    def today(cls) -> "Tomorrow":
        return cls(2126, 1, 31)


def test_the_chart_is_svg_and_always_the_same(
    muster: Muster, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, chart = lines(tmp_path, *ROWS), tmp_path / "chart.svg"
    words = ("simulate", place, "--arrivals", trace, "--compare", "fifo-count", "--chart", str(chart))

    assert muster(*words).returncode == 0
    drawn = chart.read_text()
    monkeypatch.setattr("pygal.svg.date", Tomorrow)
    assert muster(*words).returncode == 0

    assert chart.read_text() == drawn
    assert not any(type(finder).__module__ == "pygal" for finder in sys.meta_path)
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own
    assert all(f"{what}, {policy}" in drawn for what in ("in use", "waiting") for policy in ("muster", "fifo-count"))


def test_without_the_library_the_chart_says_what_to_install(
    muster: Muster, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygal", None)

    done = muster("simulate", place, "--arrivals", lines(tmp_path, *ROWS), "--chart", str(tmp_path / "x.svg"))

    assert done.returncode == 2
    assert "uv tool install '.[charts]'" in done.stderr


def with_shape(place: str) -> str:
    """Add a NodeShape to the cluster of the tests."""
    text = Path(place).read_text()
    Path(place).write_text(f"{text}---\n{yaml.safe_dump_all(shape('x8', 8, price='31.50'))}")
    return place


LATE = {"name": "late", "queue": "team", "arrival": 0, "runtime": "1h", "pods": 2, "claims": [{"class": "gpu"}]}


def test_nodes_of_shapes_come_late_and_their_hours_and_price_are_shown(
    muster: Muster, place: str, tmp_path: Path
) -> None:
    Path(place).write_text(yaml.safe_dump_all(teams(quota=2)))
    played = ("simulate", with_shape(place), "--arrivals", lines(tmp_path, LATE), "--with-shapes")

    done = muster(*played, "--compare", "fifo-count", "--startup-time", "20m", "--idle-time", "10m")

    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    at = table.index("Nodes that came")
    assert table[at + 1].split() == ["SHAPE", "POLICY", "NODES", "MOST", "NODE-HOURS", "IN", "USE", "PRICE"]
    assert table[at + 2].split() == ["x8", "muster", "1", "1", "1.5", "66.7", "%", "47.25"]
    assert table[at + 3].split() == ["x8", "fifo-count", "1", "1", "1.5", "66.7", "%", "47.25"]
    answer = json.loads(muster(*played, "-o", "json").stdout)["results"][0]
    # By default five minutes and ten.
    assert answer["nodes"] == [
        {"shape": "x8", "count": 1, "mostAtOnce": 1, "nodeHours": 1.25, "busyHours": 1.0, "price": "39.38"}
    ]
    assert answer["all"]["waitSeconds"]["mean"] == 300.0
    assert answer["utilisation"]["gpu.example.com"] == {
        "devices": 0,
        "whileJobsArrive": pytest.approx(0.25),
        "toTheEnd": pytest.approx(0.25),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--startup-time", "5m"], "--startup-time is about nodes that come in a trace; add --with-shapes"),
        (["--idle-time", "5m"], "--idle-time is about nodes that come in a trace; add --with-shapes"),
        (["--with-shapes", "--idle-time", "-5m"], "--idle-time: '-5m' is not a duration such as 90s, 5m or 1h30m"),
        (["--with-shapes", "--startup-time", "721h"], "--startup-time: 721h is longer than a node takes to come"),
        (["--with-shapes"], "--with-shapes needs a NodeShape in the input: write one, or see `muster shapes propose`"),
    ],
)
def test_options_about_nodes_that_come_are_checked(
    muster: Muster, place: str, tmp_path: Path, options: list[str], message: str
) -> None:
    done = muster("simulate", place, "--arrivals", lines(tmp_path, LATE), *options)

    assert done.returncode == 2
    assert message in done.stderr


def test_a_trace_may_tolerate_taints_and_is_told_what_is_wrong_with_a_toleration(
    muster: Muster, place: str, tmp_path: Path
) -> None:
    bodies = [*yaml.safe_load_all(Path(place).read_text())]
    next(one for one in bodies if one["kind"] == "Node")["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    Path(place).write_text(yaml.safe_dump_all(bodies))
    tolerating = {**ROWS[0], "tolerations": [{"key": "gpu", "operator": "Exists"}]}

    assert muster("simulate", place, "--arrivals", lines(tmp_path, ROWS[0])).returncode == 3
    assert muster("simulate", place, "--arrivals", lines(tmp_path, tolerating)).returncode == 0
    wrong = {**ROWS[0], "tolerations": [{"key": "gpu", "operator": "Is"}]}
    done = muster("simulate", place, "--arrivals", lines(tmp_path, wrong))
    assert done.returncode == 2
    assert "trace.jsonl:1: tolerations[0].operator: " in done.stderr
