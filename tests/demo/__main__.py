"""`python -m tests.demo`: tell the story, on the best stage that there is."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from admission.errors import ClusterUnavailableError, FixError, MusterError
from tests.controlplane import BuildFailed, ControlPlane, StartFailed, ToolMissing
from tests.demo import month, offline, places
from tests.demo.places import RefusedError
from tests.demo.serving import serving
from tests.demo.stage import Stage
from tests.demo.story import DoorError, Story
from tests.demo.telling import StoryError, Teller

FAILED, REFUSED, INTERRUPTED, TERMINATED = 1, 2, 130, 143


def main() -> int:
    """Return the exit code: 0 the story was told, 1 it went wrong, 2 the cluster is not one for it."""
    try:
        return asyncio.run(_main())
    except KeyboardInterrupt:
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED


async def _main() -> int:
    task = asyncio.current_task()
    assert task is not None
    # An orderly end: what was started is ended, and what was put on a cluster is cleared away.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    teller = Teller()
    started = time.monotonic()
    try:
        await _tell(teller)
    except (RefusedError, StoryError, MusterError) as error:
        print(error, file=sys.stderr)
        return REFUSED if isinstance(error, RefusedError) else FAILED
    teller.say(f"\nTold in {time.monotonic() - started:.0f} s. Nothing is left running.")
    return 0


async def _tell(teller: Teller) -> None:
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as folder:
        async with month.written(Path(folder)) as jobs:
            if os.environ.get("KUBECONFIG"):
                await _on_theirs(teller)
            else:
                await _on_ours(teller)
            await month.tell(teller, Path(folder), jobs)


async def _on_ours(teller: Teller) -> None:
    control_plane = ControlPlane()
    teller.say("Starting a real Kubernetes: etcd, API server, scheduler and controller manager.")
    try:
        await asyncio.to_thread(control_plane.start)
    except (ToolMissing, BuildFailed, StartFailed) as error:
        teller.say(f"{_sentence('No control plane', error)} The story is told offline instead.")
        return await offline.tell(teller)
    try:
        async with places.own(control_plane) as stage:
            await _with_muster(teller, stage)
    finally:
        await asyncio.to_thread(control_plane.stop)


async def _on_theirs(teller: Teller) -> None:
    try:
        async with places.borrowed() as stage:
            teller.say(f"Using the cluster at {stage.connection.server}; what is put there is cleared away at the end.")
            try:
                await _with_muster(teller, stage)
            except DoorError as error:
                raise RefusedError(
                    f"The API server at {stage.connection.server} does not reach Muster's webhook on this machine"
                    f" (https://127.0.0.1), as the demo needs it to: {error}."
                ) from error
    except (ClusterUnavailableError, FixError) as error:
        teller.say(f"{_sentence('No cluster', error)} The story is told offline instead.")
        await offline.tell(teller)


async def _with_muster(teller: Teller, stage: Stage) -> None:
    async with serving(stage.kubeconfig) as muster:
        try:
            await Story(stage, muster, teller).tell()
        except DoorError:
            raise
        except StoryError as error:
            raise StoryError(f"{error}\n--- the end of Muster's log\n{muster.tail()}") from error


def _sentence(what: str, error: Exception) -> str:
    return f"{what}: {str(error).rstrip('.')}."


if __name__ == "__main__":
    sys.exit(main())
