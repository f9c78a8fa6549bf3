"""What pages tell people to type where no cluster is needed does what they show."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane.processes import FreePorts
from tests.docs import commanding, pages
from tests.docs.commanding import Differs, Terminal
from tests.docs.pages import Block

OFFLINE = [block for block in commanding.blocks() if commanding.runs(block, offline=True)]
PAGES = sorted({block.page for block in OFFLINE})

pytestmark = pytest.mark.timeout(240, func_only=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A folder with what a checkout has, and nobody's settings."""
    for name in ("config", "deploy", ".venv"):
        (tmp_path / name).symlink_to(pages.ROOT / name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return Terminal(tmp_path, {"PATH": path, "HOME": str(tmp_path), "COLUMNS": "200", "LANG": "C.UTF-8"})


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_offline_what_it_shows(page: str, terminal: Terminal) -> None:
    for block in OFFLINE:
        if block.page == page:
            terminal.run(block)


def a_block(text: str, **attributes: str) -> Block:
    return Block(page="page.md", line=1, language="console", attributes=attributes, text=text)


@pytest.mark.parametrize(
    "text",
    [
        "$ echo there is 1\nthere is 1",
        "$ echo waits for 12s, as job-0a1b2\nwaits for 3m10s, as job-9f8e7",
        "$ printf 'a   b\\nc\\n'\na b\n…",
        "$ echo 'one\n> two'\none two",
        "$ echo no matter what\n$ echo at 2026-11-22T10:00:00Z used 1.25\nat 2025-01-01T00:00:00Z used 861.7883",
    ],
)
def test_page_output_may_differ_where_values_change_from_run_to_run(terminal: Terminal, text: str) -> None:
    terminal.run(a_block(text))


def test_a_background_command_of_a_page_ends_with_its_block(terminal: Terminal) -> None:
    terminal.run(a_block("$ sleep 3600 & echo begun\nbegun"))


def test_a_serving_command_of_a_page_serves_until_its_block_ends(terminal: Terminal) -> None:
    with FreePorts() as ports:
        port = ports.pick()
    serving = Block(
        page="page.md",
        line=1,
        language="shell",
        attributes={"serves": f"http://127.0.0.1:{port}"},
        text=f"python3 -m http.server --bind 127.0.0.1 {port}",
    )

    terminal.run(serving)
    with pytest.raises(Differs):
        terminal.run(replace(serving, text=f"{serving.text} &\nfalse"))


@pytest.mark.parametrize(
    ("text", "exits"),
    [
        ("$ echo there are 2\nthere are 3", "0"),
        ("$ echo one, and more\none", "0"),
        ("$ false", "0"),
        ("$ true", "3"),
        ("$ exit 3\n$ echo x\nx", "0"),
        ("$ no-such-command | cat", "0"),
    ],
)
def test_a_page_command_with_other_output_fails_with_its_place_in_the_page(
    terminal: Terminal, text: str, exits: str
) -> None:
    with pytest.raises(Differs, match=r"page\.md:1: "):
        terminal.run(a_block(text, exits=exits))
