"""Who runs what in `make test`: processes of xdist are played, and take turns."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests import lanes
from tests.docs.pages import ROOT

TESTS = [
    f"tests/{file}.py::test_{number}"
    for file in (
        "architecture/test_a",
        *(
            f"e2e/test_{name}"
            for name in ("a", "b", "c", "month", "muster_under_fire", "page_commands", "page_without_helm")
        ),
        "integration/test_a",
        "property/test_a",
        "unit/test_a",
    )
    for number in range(4)
]


class Process:
    """A process of xdist that runs what it is given."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.done: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(test.removeprefix("tests/").partition(".py")[0] for test in self.done))


def ran(*names: str) -> dict[str, list[str]]:
    """Run all tests in processes of these names; return the files of each, in order."""
    options: Any = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=False), getvalue=lambda _: ["popen"] * len(names)
    )
    scheduler = lanes.Lanes(options)
    processes: list[Any] = [Process(name) for name in names]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, TESTS)
    scheduler.schedule()
    while any(process.given for process in processes):
        for process in processes:
            if process.given:
                process.done.append(TESTS[process.given[0]])
                scheduler.mark_test_complete(process, process.given.pop(0))
    assert sorted(test for process in processes for test in process.done) == sorted(TESTS)
    assert all(process.shutting_down for process in processes)
    return {process.gateway.id: process.files for process in processes}


def test_two_processes_have_a_control_plane_and_the_third_computes() -> None:
    # Which process is ready first is chance.
    files = ran("gw2", "gw1", "gw0")

    assert files["gw2"][:3] == ["e2e/test_month", "property/test_a", "integration/test_a"]
    assert not [file for file in files["gw2"][1:] if file.startswith("e2e/")]
    first = sorted((files["gw0"][:2], files["gw1"][:2]))
    assert first == [
        ["e2e/test_muster_under_fire", "e2e/test_a"],
        ["e2e/test_page_commands", "e2e/test_page_without_helm"],
    ]


@pytest.mark.parametrize("names", [["gw0"], ["gw0", "gw1"], ["gw3", "gw4", "gw5", "gw6"]])
def test_any_number_of_processes_runs_everything_once(names: list[str]) -> None:
    files = ran(*names)

    assert sum("e2e/test_a" in found for found in files.values()) == 1


def test_what_is_said_to_start_no_control_plane_is_there_and_asks_for_none() -> None:
    for name in lanes.COMPUTING:
        assert not {"control_plane", "ControlPlane"} & set(re.findall(r"\w+", (ROOT / name).read_text())), name
