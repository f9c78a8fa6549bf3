"""One Muster serves all tests of a module; each has a driver, a class, meters and a team of its own, so that none sees
what another left.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.namespaces import Namespace
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def running(control_plane: ControlPlane) -> Iterator[Muster]:
    muster = Muster(control_plane).start()
    yield muster
    muster.clean()


@pytest.fixture
def lab(control_plane: ControlPlane, running: Muster, namespace: Namespace) -> Iterator[Lab]:
    number = f"lab{next(numbers)}"
    lab = Lab(control_plane=control_plane, muster=running, namespace=namespace, driver=f"{number}.test")
    yield lab
    lab.clear()


@pytest.fixture
def resume(control_plane: ControlPlane) -> Iterator[Callable[[], None]]:
    """Starts kube-scheduler, which is away until then, at the latest when the test ends."""
    control_plane.stop_program("kube-scheduler", hard=True)
    away = True

    def start() -> None:
        nonlocal away
        if away:
            control_plane.start_program("kube-scheduler")
            away = False

    yield start
    start()
