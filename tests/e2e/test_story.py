"""The demo's story on the real control plane, with everything asserted that it shows.

It is told once, on a control plane of its own, since Muster's webhooks and CRDs are there for a whole cluster.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.demo import places
from tests.demo.serving import serving
from tests.demo.story import MOST_MEBIBYTES, Scene, Story
from tests.demo.telling import Teller


@pytest.fixture(scope="module")
def story(kubernetes: str) -> Iterator[Story]:
    with ControlPlane(kubernetes) as control_plane:
        yield asyncio.run(_told(control_plane))


async def _told(control_plane: ControlPlane) -> Story:
    async with places.own(control_plane) as stage, serving(stage.kubeconfig) as muster:
        story = Story(stage, muster, Teller(quiet=True))
        await story.tell()
    return story


def scene(story: Story, title: str) -> Scene:
    return next(found for found in story.scenes if found.title == title)


def test_a_gang_that_fits_is_bound_as_planned(story: Story) -> None:
    seen = scene(story, "starts")

    assert seen.phase("pretrain") == "Running"
    assert seen.nodes("pretrain") == [f"demo-node-{number}" for number in range(1, 5)]
    assert sorted(pod["node"] for pod in seen.gangs["pretrain"]["status"]["plan"]) == seen.nodes("pretrain")


def test_the_gang_over_quota_of_the_story_is_held_with_the_numbers(story: Story) -> None:
    hold = scene(story, "over quota").gangs["ablation"]["status"]["hold"]

    assert hold["reason"] == "QuotaExceeded"
    assert {name: hold["details"][name] for name in ("meter", "left", "needed")} == {
        "meter": "demo-gpus",
        "left": "0",
        "needed": "2",
    }


def test_not_one_pod_starts_of_a_gang_that_cannot_be_allocated_together(story: Story) -> None:
    seen = scene(story, "not together")

    assert seen.reason("evaluate") == "DevicesBusy"
    assert seen.nodes("evaluate") == ["", ""]
    assert all(pod["spec"]["schedulingGates"] for pod in seen.pods["evaluate"])


def test_what_waits_is_admitted_whole_when_devices_come_free(story: Story) -> None:
    seen = scene(story, "admitted")

    assert {job: seen.phase(job) for job in ("ablation", "evaluate")} == {"ablation": "Running", "evaluate": "Running"}
    assert all(seen.nodes("evaluate"))
    assert seen.phase("pretrain") == "Finished"


def test_queues_say_what_is_used(story: Story) -> None:
    def used(title: str) -> dict[str, str]:
        status = {name: queue["status"]["meters"] for name, queue in scene(story, title).queues.items()}
        return {name: use["used"] for name, meters in status.items() for use in meters if use["meter"] == "demo-gpus"}

    assert used("starts") == {"demo-vision": "16", "demo-language": "0"}
    assert used("admitted") == {"demo-vision": "2", "demo-language": "6"}


def test_memory_stays_within_bounds(story: Story) -> None:
    assert story.mebibytes < MOST_MEBIBYTES
