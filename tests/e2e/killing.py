"""`python -m tests.e2e.killing N serve …`: `muster`, but it kills itself (-9) when about to open its n-th gate.

A real process that really dies between the commit of a reservation and the opening of a gate.
"""

import os
import signal
import sys
from itertools import count

from admission import cli
from admission.api.names import NodeName
from admission.api.pods import Pod
from admission.cluster.patching import PodWriter


def main() -> None:
    fatal = int(sys.argv.pop(1))
    real, calls = PodWriter.open_gate, count(1)

    async def open_gate(self: PodWriter, pod: Pod, node: NodeName | None) -> None:
        if next(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        await real(self, pod, node)

    PodWriter.open_gate = open_gate  # type: ignore[method-assign]
    cli.main()


if __name__ == "__main__":
    main()
