"""Which paths are known, and that plain ones are for as long as a configuration names them."""

import asyncio
from dataclasses import dataclass

import pytest

from admission.errors import RetryError
from admission.webhook.known_paths import GRACE_SECONDS, NAMED_AGAIN_SECONDS, UNNAMED_AGAIN_SECONDS, KnownPaths

OLD, NEW = "0" * 40, "1" * 40

PATHS = {
    "an old segment": (f"/{OLD}/mutate", ("mutate", False)),
    "a new segment": (f"/{NEW}/validate", ("validate", False)),
    "no segment": ("/mutate", ("mutate", True)),
    "another segment": (f"/{'2' * 40}/mutate", ("", False)),
    "a part of one": (f"/{OLD[1:]}/mutate", ("", False)),
    "more than one": (f"/{OLD}0/mutate", ("", False)),
    "an empty one": ("//mutate", ("", False)),
    "both": (f"/{OLD}/{NEW}/mutate", ("", False)),
    "what is no text": ("/\udcff/mutate", ("", False)),
    "no path": ("*", ("", False)),
    "nothing": ("", ("", False)),
}


@pytest.mark.parametrize(("path", "endpoint"), PATHS.values(), ids=PATHS)
async def test_an_endpoint_is_found_by_a_segment_that_is_known(path: str, endpoint: tuple[str, bool]) -> None:
    assert KnownPaths([OLD, NEW]).endpoint(path) == endpoint


async def test_a_segment_that_is_rotated_out_is_not_known() -> None:
    paths = KnownPaths([OLD])
    paths.replace([NEW])

    assert [paths.endpoint(f"/{one}/mutate")[0] for one in (OLD, NEW)] == ["", "mutate"]


@dataclass
class Cluster:
    """What a configuration names, how often it was looked at, and the time."""

    is_plain: bool = False
    is_away: bool = False
    looks: int = 0
    now: float = 100.0

    async def look(self) -> bool:
        self.looks += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise RetryError("the API server is away")
        return self.is_plain

    def paths(self) -> KnownPaths:
        return KnownPaths(is_plain_registered=self.look, clock=lambda: self.now)


async def test_where_others_write_the_configurations_plain_paths_are_known() -> None:
    assert await KnownPaths().knows_plain()


async def test_plain_paths_are_known_while_a_configuration_names_them_and_a_while_longer() -> None:
    cluster = Cluster(is_plain=True)
    paths = cluster.paths()
    assert await paths.knows_plain()

    cluster.is_plain = False
    cluster.now += NAMED_AGAIN_SECONDS
    assert await paths.knows_plain()

    cluster.now += GRACE_SECONDS - NAMED_AGAIN_SECONDS
    assert not await paths.knows_plain()


async def test_plain_paths_are_known_again_after_a_rollback() -> None:
    cluster = Cluster()
    paths = cluster.paths()
    assert not await paths.knows_plain()

    cluster.is_plain = True
    cluster.now += UNNAMED_AGAIN_SECONDS
    assert await paths.knows_plain()


async def test_whoever_calls_plain_paths_makes_it_look_once_a_second() -> None:
    cluster = Cluster()
    paths = cluster.paths()

    for _ in range(10):
        known = await asyncio.gather(*(paths.knows_plain() for _ in range(50)))
        assert not any(known)
        cluster.now += UNNAMED_AGAIN_SECONDS / 5

    assert cluster.looks == 2


async def test_all_that_wait_for_a_look_have_its_answer() -> None:
    cluster = Cluster(is_plain=True)
    paths = cluster.paths()

    assert all(await asyncio.gather(*(paths.knows_plain() for _ in range(50))))
    assert cluster.looks == 1


async def test_while_the_api_server_is_away_nobody_can_tell() -> None:
    cluster = Cluster(is_away=True)

    paths = cluster.paths()
    for _ in range(3):
        with pytest.raises(RetryError):
            await paths.knows_plain()
    assert cluster.looks == 1

    cluster.is_away, cluster.is_plain, cluster.now = False, True, cluster.now + UNNAMED_AGAIN_SECONDS
    assert await paths.knows_plain()
