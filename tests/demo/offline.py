"""The same story without a cluster: `muster simulate` on the same manifests."""

import json
import os
import tempfile
from pathlib import Path

from tests.controlplane import fleet
from tests.demo.stage import MANIFESTS
from tests.demo.story import GPUS
from tests.demo.telling import Teller

STEPS = (
    ("1. Team vision submits `pretrain`: 4 pods with 4 GPUs each. It fits and starts", "20-pretrain.yaml"),
    ("2. Team vision submits `ablation`: 2 GPUs more. Five are free, but its quota is used up", "30-ablation.yaml"),
    ("3. Team language submits `evaluate`: 2 pods with 3 GPUs each, which cannot start together", "40-evaluate.yaml"),
)


async def tell(teller: Teller) -> None:
    """Show what Muster decides as one manifest after the other is submitted, and when what runs ends."""
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as folder:
        nodes = Path(folder) / "six-nodes.json"
        items = fleet.demo_fleet(GPUS, prefix="demo-node")
        nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        teller.heading("Two teams share six nodes: five with four GPUs, the sixth has one left")
        inputs = [str(nodes), _path("10-teams.yaml")]
        for heading, manifest in STEPS:
            inputs.append(_path(manifest))
            teller.heading(heading)
            await teller.run(f"simulate {' '.join(inputs)}", env={})
        teller.heading("4. `pretrain` ends. What waits is admitted, each gang as a whole")
        await teller.run(f"simulate {' '.join(inputs)} --until-empty", env={})


def _path(manifest: str) -> str:
    """Return a path as a person would type it."""
    return os.path.relpath(MANIFESTS / manifest)
