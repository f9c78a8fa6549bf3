"""The site is built from the repository as `make docs` builds it, strictly, and needs nobody else to be read."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages, staging

ZENSICAL = Path(sys.executable).with_name("zensical")
FETCHED = re.compile(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")

pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with the configuration, and the source of the site where that expects it."""
    shutil.copy(pages.ROOT / "zensical.toml", tmp_path)
    staging.stage(tmp_path / "dist" / "docs")
    return tmp_path


def build(source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ZENSICAL, "build", "--strict"], cwd=source, capture_output=True, text=True, check=False)


def test_it_is_built_without_a_warning_and_fetches_nothing_from_elsewhere(source: Path) -> None:
    built = build(source)

    assert built.returncode == 0, built.stdout + built.stderr
    found = sorted((source / "dist" / "site").rglob("*.html"))
    assert {"install.html", "queue.html", "20-queues.yaml.html"} <= {path.name for path in found}
    assert {link for path in found for link in FETCHED.findall(path.read_text())} == set()


@pytest.mark.parametrize("link", ["nothing.md", "install.md#nowhere"])
def test_a_link_that_leads_nowhere_fails_the_build(source: Path, link: str) -> None:
    with (source / "dist" / "docs" / "index.md").open("a") as page:
        page.write(f"\n[there]({link})\n")

    assert build(source).returncode != 0


def test_a_link_to_a_file_that_is_not_there_is_named(source: Path) -> None:
    with pytest.raises(staging.NoSuchFile, match=r"docs/x\.md leads to \.\./nothing\.yaml"):
        staging.rewritten(Path("docs/x.md"), "see [that](../nothing.yaml)")


def test_links_are_written_for_where_pages_stand_and_attributes_of_blocks_are_not_shown() -> None:
    text = 'see [that](../deploy/manifests/rbac.yaml#x)\n```shell skip="[no](../such)"\n[a](../b)\n```\n'

    shown, leads = staging.rewritten(Path("docs/x.md"), text)

    assert shown == "see [that](repository/deploy/manifests/rbac.yaml.md#x)\n```shell\n[a](../b)\n```\n"
    assert leads == [Path("deploy/manifests/rbac.yaml")]
