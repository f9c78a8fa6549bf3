"""Two images of deploy/Dockerfile for all tests of the run, and a control plane for them to work with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import control_plane, kubernetes, namespace, options
from tests.image import building, programs
from tests.image.engines import Engine
from tests.image.trees import Tree

__all__ = ["control_plane", "kubernetes", "namespace", "options"]

HERE = Path(__file__).parent
SECONDS_PER_TEST = 900


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what stands here, unless somebody asked for it by its path: it takes minutes, root and the network."""
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        # The first test would otherwise pay for the builds.
        item.add_marker(pytest.mark.timeout(SECONDS_PER_TEST, func_only=True))
    if not _asked_for(config):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


def _asked_for(config: pytest.Config) -> bool:
    paths = (Path(config.invocation_params.dir, argument.split("::")[0]) for argument in config.invocation_params.args)
    return any(path.exists() and path.resolve().is_relative_to(HERE) for path in paths)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine that has the base image."""
    try:
        programs.look()
    except programs.ProgramsMissing as missing:
        pytest.skip(str(missing))
    with Engine() as started:
        building.make_base(started)
        yield started


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which somebody has worked."""
    return building.checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def image(engine: Engine, context: Path) -> str:
    return building.build(engine, context, "muster")


@pytest.fixture(scope="session")
def tree(engine: Engine, image: str) -> Tree:
    """What is in the image."""
    return Tree.of(engine, image)


@pytest.fixture(scope="session")
def base(engine: Engine) -> Tree:
    """What was there before Muster came."""
    return Tree.of(engine, building.BASE)
