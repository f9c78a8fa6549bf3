"""What pages tell people to type is run, here or there, or it is said why not; and what is not run exists at least."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docs import commanding, pages, sentences
from tests.docs.pages import Block
from tests.docs.reference import commands
from tests.docs.sentences import Said

OTHERS = ("text", "yaml", "toml", "json", "python")
"""Languages of blocks with nothing to type."""

SKIPPED: Counter[str] = Counter(
    {
        "changes a queue of yours": 1,
        "fetches a public trace; what follows is run on lists of the same columns": 1,
        "needs a public trace, which is not part of Muster": 2,
        "a rollback; tests/e2e/test_muster_certificates.py writes the paths so": 1,
        "asks something of a gang of yours; tests/e2e/test_muster_command_line.py asks of some": 1,
        "kubeconform is not part of Muster": 1,
        "needs Argo CD": 1,
        "needs Docker and a registry": 1,
        "needs a dashboard": 1,
        "needs Kueue": 1,
        "tests/e2e/test_first_gang.py types them": 2,
        "needs the books of a cluster; tests/e2e/test_muster_used_hours.py asks some": 1,
        "needs books of months; tests/integration/test_ledger_closing_command.py closes them": 1,
        "of a ledger in a file; tests/integration/test_ledger_restoration.py backs up and restores": 2,
        "plays a trace of yours; tests/unit play some": 1,
        "reads a file of yours; tests/unit/cli/test_scheduler_config.py reads some": 1,
        "sets up or runs this repository": 6,
        "shows a file that has the traps; tests/unit lint them": 1,
        "shows an estimate; tests/e2e asks for one": 1,
        "shows the demonstration; tests/e2e/test_story.py and test_month.py tell it": 6,
        "tests/e2e/test_dashboard.py serves it so": 1,
        "tests/e2e/test_muster_pod_policy.py does it by their paths": 2,
        "the books are wrong then; tests/e2e/test_muster_heads.py runs it": 1,
        "takes the heads away, on which other pages go on": 1,
        "the same as in docs/install.md, where it is run": 4,
    }
)
"""Why blocks are not run, and how many for each reason."""

MEND = (
    "tests/docs/commanding.py says how blocks with something to type are marked; what is not run is counted in SKIPPED"
)
BLOCKS = [block for name in pages.names() for block in pages.blocks(name)]
TYPED = commanding.blocks()
SKIPS = [block for block in TYPED if "skip" in block.attributes]
SAID = list({said.text: said for said in sentences.every()}.values())
VERBS = {
    "kubectl": {"apply", "create", "debug", "delete", "describe", "exec", "explain", "get", "port-forward", "wait"},
    "helm": {"test", "install", "uninstall", "upgrade"},
}
"""What sentences have people do; what of it is complete is typed in tests/e2e/test_page_commands.py."""

VALUES = yaml.safe_load((pages.ROOT / "deploy/chart/values.yaml").read_text())
TOOLS = re.compile(r"^(\$ )?(muster|kubectl|helm|make|docker|curl|pip|uv|python3?|\S*bin/muster) ", re.MULTILINE)


def test_every_page_block_has_a_known_language_and_known_attributes() -> None:
    known = (*OTHERS, *commanding.LANGUAGES)

    assert [block.place for block in BLOCKS if block.language not in known] == [], f"each has one of {known}: {MEND}"
    strange = [block.place for block in TYPED if not set(block.attributes) <= set(commanding.ATTRIBUTES)]
    assert strange == [], f"attributes are {commanding.ATTRIBUTES}: {MEND}"


def test_no_command_hides_in_a_block_that_is_not_run() -> None:
    others = [block for block in BLOCKS if block.language in OTHERS]
    indented = [
        (name, token.map) for name in pages.names() for token in pages.tokens(name) if token.type == "code_block"
    ]

    assert indented == [], f"a block stands between fences: {MEND}"
    assert len(others) > 10
    assert [block.place for block in others if TOOLS.search(block.text) and "synopsis" not in block.attributes] == [], (
        MEND
    )


def test_page_blocks_that_are_not_run_are_counted_by_reason() -> None:
    assert Counter(block.attributes["skip"] for block in SKIPS) == SKIPPED, MEND


def test_a_page_block_skipped_as_a_repetition_is_run_elsewhere() -> None:
    there = [block for block in TYPED if block.page == "docs/install.md" and commanding.runs(block, offline=False)]
    run = {line for block in there for line in block.text.splitlines()}

    for block in SKIPS:
        if block.attributes["skip"].startswith("the same as in docs/install.md"):
            assert set(block.text.splitlines()) <= run, f"{block.place} is not the same"


def test_most_blocks_are_run() -> None:
    run = [block for block in TYPED if commanding.runs(block, offline=True) or commanding.runs(block, offline=False)]

    assert len(run) > len(SKIPS)


def test_examples_of_the_help_are_in_the_reference_of_commands_alone() -> None:
    assert {block.page for block in TYPED if "parsed" in block.attributes} == {"docs/reference/cli.md"}


@pytest.mark.parametrize("block", SKIPS, ids=lambda block: block.place)
def test_a_page_block_that_is_not_run_names_existing_commands(block: Block) -> None:
    for line in "\n".join(step.command for step in commanding.steps(block)).splitlines():
        named = re.findall(r"\b(?:config|deploy)/[\w./-]+", line)
        assert [path for path in named if "=" not in path and not (pages.ROOT / path).exists()] == []
        chosen = re.findall(r"--set '?([\w.]+)", line)
        assert [name for name in chosen if not _has(VALUES, name.split("."))] == []
        typed = line.rpartition(" -- ")[2]
        if typed.startswith("muster "):
            commands.parse(typed)


def test_commands_in_sentences_exist() -> None:
    unknown = {said.text: words for said in SAID if (words := [*_unknown(said)])}

    assert len(SAID) > 50
    assert unknown == {}


def _unknown(said: Said) -> Iterator[str]:
    """Yield the words of a command, and the files that it names, that are not there."""
    if said.tool == "muster":
        yield from commands.unknown(said.text)
    elif said.words[0] not in VERBS[said.tool]:
        yield said.words[0]
    named = re.findall(r"\b(?:config|deploy)/[\w./-]+", said.text)
    yield from (path for path in named if not (pages.ROOT / path).exists())


def test_commands_in_sentences_are_known_from_those_that_only_are_like_them() -> None:
    assert commands.unknown("muster fence list|lift [DRIVER…] [--format text|json]") == []
    assert commands.unknown("muster queue halt research") == ["halt"]
    assert commands.unknown("muster fence list|drop") == ["list|drop"]
    assert commands.unknown("muster why POD --colour=never") == ["--colour=never"]


def test_commands_that_change_a_cluster_stand_in_blocks() -> None:
    """But for what a table of the chart's values can only say in a sentence."""
    asking = ("get", "describe", "explain")
    others = [said for said in SAID if said.tool != "muster" and said.complete and said.words[0] not in asking]

    assert [said.text for said in others] == ["kubectl apply --server-side --force-conflicts -f config/crds"]


def _has(values: Any, names: list[str]) -> bool:
    """Whether there is such a value; what is below a list is the user's to name."""
    if not names or isinstance(values, list):
        return True
    return isinstance(values, dict) and names[0] in values and _has(values[names[0]], names[1:])
