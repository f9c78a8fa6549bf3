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


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    driver = f"lab{next(numbers)}.test"
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver) as lab:
        yield lab


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
