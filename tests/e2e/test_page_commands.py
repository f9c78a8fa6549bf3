"""What pages tell people to type on a cluster does what they show, installed as docs/install.md says.

Pages forward the ports 8080 and 9090 of this machine, so these have to be free.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.docs import commanding, sentences
from tests.docs.pages import Block
from tests.e2e import fixtures, readers
from tests.e2e.readers import Reader
from tests.postgres import Server

FIRST = ("docs/install.md", "docs/tasks/pending.md")
"""Pages that the others take up from."""
RUNBOOK = "docs/runbook.md"
"""It ends the leader, and restores the books into another database: after the others, which read them."""
BLOCKS = [block for block in commanding.blocks() if commanding.runs(block, offline=False)]
SAID = {said.text: said for said in sentences.every() if said.tool == "kubectl" and said.complete}.values()
LAST = [block for block in BLOCKS if "last" in block.attributes]
PAGES = [*dict.fromkeys([*FIRST, *(block.page for block in BLOCKS if block.page != RUNBOOK)]), RUNBOOK]
CONTROLLER = "/apis/apps/v1/namespaces/muster-system/deployments/muster-controller"

pytestmark = pytest.mark.timeout(900, func_only=True)


# Pages show all that is in the cluster.
control_plane = fixtures.own_control_plane(kubelets=True)


@pytest.fixture(scope="module")
def reader(control_plane: ControlPlane, postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with readers.reading(control_plane, tmp_path_factory.mktemp("reader"), postgres) as someone:
        yield someone


def _is_for(block: Block, kubernetes: str) -> bool:
    """Whether this release has what a block is about."""
    since, here = (tuple(map(int, text.split("."))) for text in (block.attributes.get("since", "1.34"), kubernetes))
    return here >= since


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_on_a_cluster_what_it_shows(page: str, reader: Reader, kubernetes: str) -> None:
    assert page == FIRST[0] or reader.musters, f"{FIRST[0]} could not be followed"

    for block in BLOCKS:
        if block.page == page and block not in LAST and _is_for(block, kubernetes):
            reader.does(block)


def test_what_stands_in_sentences_can_be_typed(reader: Reader) -> None:
    for said in SAID:
        reader.does(Block(page=said.page, line=0, language="shell", text=said.text))


def test_the_rights_of_the_chart_were_enough(reader: Reader) -> None:
    assert reader.musters
    assert all("; grant " not in muster.logs for muster in reader.musters), "a right is missing"


def test_nothing_is_left_when_muster_is_taken_away(
    reader: Reader, control_plane: ControlPlane, kubernetes: str
) -> None:
    assert LAST
    for block in LAST:
        if _is_for(block, kubernetes):
            reader.does(block)

    assert control_plane.client().find(CONTROLLER) is None
    assert control_plane.client().find("/apis/muster.dev/v1alpha1/queues") is None
