"""The other way that docs/install.md has: the rendered manifests and kubectl, up to the first gang that runs."""

from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.docs import commanding, pages
from tests.docs.pages import Block
from tests.e2e import fixtures, readers
from tests.postgres import Server

PAGE = "docs/install.md"
SECRET, HELM = "kubectl -n muster-system create secret generic muster-ledger", "helm install"

pytestmark = pytest.mark.timeout(600, func_only=True)


control_plane = fixtures.own_control_plane(kubelets=True)


def test_the_first_gang_runs_where_the_manifests_were_applied(
    control_plane: ControlPlane, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blocks = pages.blocks(PAGE)
    (apply,) = (block for block in commanding.blocks() if "apart" in block.attributes)
    with readers.reading(control_plane, tmp_path_factory.mktemp("reader"), postgres) as reader:
        reader.does(_block(apply.text, *_lines(SECRET, blocks)))
        for block in _after_the_installation(blocks):
            reader.does(block)

        assert len(reader.musters) == 2, "a webhook and a controller"
        assert all(not muster.refusals for muster in reader.musters), "a right is missing"


def _lines(begin: str, blocks: list[Block]) -> list[str]:
    found = [line for block in blocks for line in block.text.splitlines() if line.startswith(begin)]
    assert found, f"{PAGE} has no command `{begin}`"
    return found


def _after_the_installation(blocks: list[Block]) -> Iterator[Block]:
    """Yield what the page has people type once Muster is installed, until it speaks of Helm again."""
    texts = [block.text for block in blocks]
    (at,) = (at for at, text in enumerate(texts) if text.startswith(HELM))
    first, *rollouts = texts[at].splitlines()
    assert first.startswith(HELM)
    yield _block(*rollouts)
    for block in blocks[at + 1 :]:
        if block.text.startswith("helm test"):
            continue
        if "helm" in block.text:
            return
        if commanding.runs(block, offline=False):
            yield block


def _block(*lines: str) -> Block:
    return Block(page=PAGE, line=0, language="shell", text="\n".join(lines))
