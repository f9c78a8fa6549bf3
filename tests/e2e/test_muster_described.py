"""What `kubectl describe` of a Job, its Gang and its pods tells of gangs that wait, start, or are taken back.

Each outcome that a small cluster shows at once is walked through with the real kubectl: the right Events of the right
type on each object, the same sentence once among an object's Events and once among the Gang's conditions, and columns
that fit a terminal.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.api.values import names
from admission.cycle.hold_log import SETTLED
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import PATIENCE, eventually
from tests.e2e import fixtures, teams
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team

WIDEST = 120
"""Columns of a terminal in which `kubectl get` has to fit."""

GPUS, QUOTA = 4, 20
"""Of each of two nodes, and of the queue: more than there are, so that gangs may lack either."""

KEPT_GATE = "example.org/keep"

control_plane = fixtures.own_control_plane()
hardware = fixtures.hardware(fleet.demo_fleet([GPUS, GPUS]))
muster = fixtures.muster()

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A Job that is submitted, and what is told of it.

    pods, gpus: of the Job; gate: that its pods have beside Muster's. event: type and reason on the Job and the Gang.
    column: the reason in `kubectl get gangs`. words: what the Event's message says. on_pods: whether its pods are told.
    """

    pods: int = 1
    gpus: int = 1
    annotations: Mapping[str, str] = field(default_factory=dict)
    gate: str = ""
    event: tuple[str, str]
    column: str
    words: str
    on_pods: bool = False


PLACED = Story(pods=2, event=("Normal", "Admitted"), column="", words="2 pods go to node")

HELD = {
    "quota": Story(
        pods=2, gpus=10, event=("Normal", "QuotaExceeded"), column="QuotaExceeded", words="waits in queue .* 18 gpus"
    ),
    "busy": Story(
        pods=2, gpus=4, event=("Normal", "DevicesBusy"), column="DevicesBusy", words="waits in queue .* needs 4 devices"
    ),
    "over": Story(
        pods=2,
        gpus=11,
        event=("Warning", "QuotaExceeded"),
        column="NeverFits",
        words="can never start as it is, in queue .* 22",
        on_pods=True,
    ),
    "huge": Story(
        gpus=5,
        event=("Warning", "NoFeasiblePlacement"),
        column="NeverFits",
        words="can never start as it is, in queue .* needs 5 devices",
        on_pods=True,
    ),
    "few": Story(
        pods=2,
        annotations={names.GANG_SIZE: "3"},
        event=("Normal", "GangIncomplete"),
        column="GangIncomplete",
        words="waits in queue .* 2 of 3 pods exist",
    ),
    "gated": Story(
        gate=KEPT_GATE,
        event=("Normal", "SchedulingGated"),
        column="SchedulingGated",
        words=f"waits in queue .* {re.escape(KEPT_GATE)}",
    ),
}


@pytest.fixture(scope="module")
def space(control_plane: ControlPlane) -> Namespace:
    """A namespace for all stories, since each waits beside the others."""
    control_plane.client().create("/api/v1/namespaces", {"metadata": {"name": "described"}})
    return Namespace(client=control_plane.client(), name="described")


@pytest.fixture(scope="module")
def team(control_plane: ControlPlane, muster: Muster, space: Namespace) -> Iterator[Team]:
    """A team whose gang `placed` runs, beside which each of `HELD` waits."""
    with teams.founded(control_plane, space, gpus=QUOTA) as team:
        submit(team, "placed", PLACED)
        team.wait_running("placed", PLACED.pods)
        for name, story in HELD.items():
            submit(team, name, story)
        yield team


def submit(team: Team, name: str, story: Story) -> None:
    template = f"gpus-{story.gpus}"
    if team.namespace.client.find(f"{team.namespace.templates}/{template}") is None:
        wanted = workloads.device_request(count=story.gpus)
        team.namespace.create(workloads.claim_template(template, wanted))
    job = teams.job(name, pods=story.pods, template=template, annotations=story.annotations)
    if story.gate:
        job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": story.gate}]
    team.namespace.client.create(team.jobs, job)


def described(team: Team, kind: str, name: str) -> str:
    return team.control_plane.kubectl("describe", kind, name, "-n", team.namespace.name)


Row = tuple[str, str, str]
"""An Event as `kubectl describe` shows it: type, reason and message."""

COLUMNS = re.compile(r"\s*(\S+)\s+(\S+)\s+(?:\S+ \(x\d+ over \S+\)|\S+)\s+(\S+)\s+(.*)")


def events(text: str, source: str = "muster.dev/controller") -> list[Row]:
    """Return the Events of one source in what `kubectl describe` says, in its order."""
    rows = text.partition("\nEvents:")[2].splitlines()[3:]
    found = [COLUMNS.fullmatch(row) for row in rows]
    return [(row[1], row[2], row[4]) for row in found if row is not None and row[3] == source]


def conditions(text: str) -> list[str]:
    """Return the messages of a Gang's conditions."""
    part = re.search(r"\n  Conditions:\n(.*?)\n  \w", text, re.DOTALL)
    assert part is not None, text
    return [" ".join(one.split()) for one in re.findall(r"Message: +(.*?)\n    Reason:", part[1], re.DOTALL)]


def test_a_gang_that_runs_tells_where_its_pods_are_on_job_and_gang(team: Team) -> None:
    gang = team.key("placed").partition("/")[2]

    def told() -> list[list[Row]]:
        found = [events(described(team, *one)) for one in (("job", "placed"), ("gang", gang))]
        return found if all(found) else []

    for rows in eventually(told, what="job and gang tell"):
        [(kind, reason, message)] = rows
        assert (kind, reason) == PLACED.event
        assert PLACED.words in message
    job = described(team, "job", "placed")
    assert job.index("Admitted") > job.index("SuccessfulCreate"), "a story in its order"

    def pods() -> list[str]:
        return [described(team, "pod", pod["metadata"]["name"]) for pod in team.pods("placed")]

    eventually(
        lambda: all("Scheduled" in text.partition("\nEvents:")[2] for text in pods()),
        what="kube-scheduler has told where it went",
    )
    assert [events(text) for text in pods()] == [[], []], "what is about the whole gang is not told of each pod"


@pytest.mark.parametrize(("name", "story"), HELD.items(), ids=HELD)
def test_a_gang_that_waits_tells_why_once_on_job_gang_and_pods(team: Team, name: str, story: Story) -> None:
    gang = team.key(name).partition("/")[2]
    shown: dict[str, list[Row]] = {}

    def told() -> tuple[list[Row], str, list[list[Row]]] | None:
        """Return what Job, Gang and pods tell, once all of them do: each Event is a write of its own."""
        on_job, text = events(described(team, "job", name)), described(team, "gang", gang)
        names_of_pods = [pod["metadata"]["name"] for pod in team.pods(name)]
        on_pods = {pod: events(described(team, "pod", pod)) for pod in names_of_pods}
        shown.update({"job": on_job, "gang": events(text), **on_pods})
        wanted = [on_job, events(text), *(on_pods.values() if story.on_pods else ())]
        complete = all(any(row[:2] == story.event for row in rows) for rows in wanted)
        return (on_job, text, [*on_pods.values()]) if complete else None

    within = PATIENCE + SETTLED.total_seconds()
    on_job, text, pods = eventually(told, what=lambda: f"all tell why {name} waits; they tell {shown}", within=within)
    print(text, described(team, "job", name), sep="\n")
    [message] = {row[2] for row in on_job if row[:2] == story.event}
    assert re.search(story.words, message), message
    for rows in (on_job, events(text), *pods):
        repeated = [one for one, times in Counter(row[2] for row in rows).items() if times > 1]
        assert repeated == [], "no sentence is told twice on one object"
    assert (*story.event, message) in events(text), "the Gang tells the same"
    assert {row[0] for row in on_job} == {story.event[0]}
    assert all(rows == ([(*story.event, message)] if story.on_pods else []) for rows in pods), pods
    said = conditions(text)
    assert len(said) == len(set(said)), "no condition says what another one says"
    why = team.hold(name)["message"]
    assert message.endswith(why)
    assert said.count(" ".join(why.split())) == 1, (why, said)


def test_columns_of_gangs_say_each_reason_in_one_word_and_fit_a_terminal(team: Team) -> None:
    def rows() -> dict[str, list[str]] | None:
        listed = team.control_plane.kubectl("get", "gangs", "-n", team.namespace.name).splitlines()
        assert max(map(len, listed)) <= WIDEST, listed
        found = {line.split()[0].rpartition("-")[0]: line.split() for line in listed[1:]}
        return found if len(found) == len(HELD) + 1 and all(len(row) > 5 for row in found.values()) else None

    found = eventually(rows, what="every gang has its columns")

    for name, story in HELD.items():
        assert found[name][3:5] == ["Pending", story.column], found[name]
    assert found["placed"][3:5] == ["Running", "2"], found["placed"]
    wide = team.control_plane.kubectl("get", "gangs", "-n", team.namespace.name, "-o", "wide")
    assert max(map(len, wide.splitlines())) <= 160, wide


def test_a_gang_that_was_taken_back_tells_of_its_start_and_of_that(team: Team, muster: Muster) -> None:
    key = team.key("placed")

    said = muster.command("gang", "evict", key, "--reason", "the node is repaired")

    def told() -> list[Row]:
        on_job, on_gang = (
            events(described(team, *one)) for one in (("job", "placed"), ("gang", key.partition("/")[2]))
        )
        complete = all(any(row[1] == "EvictionRequested" for row in rows) for rows in (on_job, on_gang))
        return on_job if complete else []

    rows = eventually(told, what=f"the Job and the Gang tell of it; {said}")
    assert [row[:2] for row in rows][:2] == [("Normal", "Admitted"), ("Warning", "EvictionRequested")]
    assert "the node is repaired" in rows[1][2]
    text = described(team, "gang", key.partition("/")[2])
    messages = [row[2] for row in events(text)]
    assert len(messages) == len(set(messages)), messages
    assert "the node is repaired" in text


def test_a_queue_that_stops_tells_it_of_each_gang_that_waits(control_plane: ControlPlane, team: Team) -> None:
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", {"spec": {"stopPolicy": "Hold"}})

    def told() -> bool:
        return [row[:2] for row in events(described(team, "job", "quota"))][-1] == ("Normal", "QueueStopped")

    eventually(told, what="the Job tells that its queue is stopped")
    rows: list[Any] = [row[1] for row in events(described(team, "job", "quota"))]
    assert rows == ["QuotaExceeded", "QueueStopped"], "one after the other"
