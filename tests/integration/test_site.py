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

pytestmark = pytest.mark.timeout(300, func_only=True)


def build(source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ZENSICAL, "build", "--strict"], cwd=source, capture_output=True, text=True, check=False)


def test_the_site_is_built_without_a_warning_and_fetches_nothing_external(tmp_path: Path) -> None:
    shutil.copy(pages.ROOT / "zensical.toml", tmp_path)
    staging.stage(tmp_path / "dist" / "docs")

    built = build(tmp_path)

    assert built.returncode == 0, built.stdout + built.stderr
    found = sorted((tmp_path / "dist" / "site").rglob("*.html"))
    assert {"install.html", "queue.html", "20-queues.yaml.html"} <= {path.name for path in found}
    assert {link for path in found for link in FETCHED.findall(path.read_text())} == set()


@pytest.mark.parametrize(("link", "code"), [("page.md#there", 0), ("nothing.md", 1), ("page.md#nowhere", 1)])
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str, code: int) -> None:
    settings = (pages.ROOT / "zensical.toml").read_text()
    (tmp_path / "zensical.toml").write_text(re.sub(r"^nav = \[.*?^\]", "", settings, flags=re.MULTILINE | re.DOTALL))
    folder = tmp_path / "dist" / "docs"
    folder.mkdir(parents=True)
    (folder / "page.md").write_text("# Page\n\n## There\n")
    (folder / "index.md").write_text(f"# Front\n\n[there]({link})\n")

    assert build(tmp_path).returncode == code


def test_a_link_to_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(staging.NoSuchFile, match=r"docs/x\.md leads to \.\./nothing\.yaml"):
        staging.rewritten(Path("docs/x.md"), "see [that](../nothing.yaml)")


def test_links_are_written_for_where_pages_stand_and_attributes_of_blocks_are_not_shown() -> None:
    text = 'see [that](../deploy/manifests/rbac.yaml#x)\n```shell skip="[no](../such)"\n[a](../b)\n```\n'

    shown, leads = staging.rewritten(Path("docs/x.md"), text)

    assert shown == "see [that](repository/deploy/manifests/rbac.yaml.md#x)\n```shell\n[a](../b)\n```\n"
    assert leads == [Path("deploy/manifests/rbac.yaml")]
