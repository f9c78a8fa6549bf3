"""The README opens with what a newcomer types first."""

from tests.docs import pages


def test_the_readme_opens_with_the_two_commands() -> None:
    lines = pages.blocks("README.md")[0].text.splitlines()

    assert [line.split("#")[0].strip() for line in lines] == ["make demo", "make test"]


def test_the_readme_shows_the_examples_without_a_cluster() -> None:
    assert "muster simulate config/examples" in (pages.ROOT / "README.md").read_text()
