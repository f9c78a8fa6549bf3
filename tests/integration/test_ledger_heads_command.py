"""`muster ledger heads`, and `verify` with heads, as they are typed."""

import json
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature

from admission.heads import head_document, key_history, signed_head
from admission.heads.head_document import KeptHeads
from admission.ledger.sql_ledger import SqlLedger
from tests.integration import ledgers
from tests.integration.ledgers import CLUSTER, a_history
from tests.unit.cli.conftest import Muster
from tests.unit.heads.builders import AT, RING, a_head


@pytest.fixture
async def books(tmp_path: Path) -> tuple[str, KeptHeads]:
    """Return the URL of a ledger, and heads of its second and fourth transactions."""
    url = await ledgers.a_ledger(tmp_path)
    heads = []
    async with SqlLedger.open(url, CLUSTER) as ledger:
        for entry in a_history():
            posted = await ledger.post(entry, epoch=1)
            if posted.sequence in (2, 4):
                heads.append(key_history.sign(a_head(posted.sequence, digest=posted.digest, at=AT), RING))
    return url, KeptHeads(heads=tuple(heads), keys=RING.keys)


@pytest.fixture
def files(books: tuple[str, KeptHeads], tmp_path: Path) -> tuple[Path, Path]:
    """Return a file of lines, and one of keys."""
    lines, keys = tmp_path / "heads.jsonl", tmp_path / "keys.json"
    lines.write_bytes(b"".join(map(signed_head.to_line, books[1].heads)))
    keys.write_text(json.dumps(key_history.to_json(RING.keys)))
    return lines, keys


def test_verify_says_through_how_many_heads_the_chain_passes(
    books: tuple[str, KeptHeads], files: tuple[Path, Path], muster: Muster
) -> None:
    words = (
        "ledger",
        "verify",
        "-d",
        books[0],
        "--cluster",
        CLUSTER,
        "--heads",
        str(files[0]),
        "--keys",
        str(files[1]),
    )

    text, document = muster(*words), muster(*words, "--format", "json")

    assert text.returncode == document.returncode == 0
    assert (
        "the chain passes through 2 heads that are kept elsewhere, the newest of 2026-03-01T12:00:00.000000+00:00;"
        " 2 transactions after the newest are not proven yet"
    ) in text.stdout
    found = json.loads(document.stdout)
    assert (found["ok"], found["transactions"], found["finding"]) == (True, 6, None)
    assert found["heads"] == {
        "compared": 2,
        "archived": 0,
        "after": 2,
        "newest": {"sequence": 4, "epoch": 1, "at": "2026-03-01T12:00:00Z"},
        "findings": [],
    }


def test_verify_without_heads_says_nothing_of_them(books: tuple[str, KeptHeads], muster: Muster) -> None:
    ended = muster("ledger", "verify", "-d", books[0], "--cluster", CLUSTER, "--format", "json")

    assert "heads" not in json.loads(ended.stdout)


def test_a_digest_that_differs_ends_with_3_and_says_where(books: tuple[str, KeptHeads], muster: Muster) -> None:
    words = ("ledger", "verify", "-d", books[0], "--cluster", CLUSTER, "--expect", f"4:{'a' * 64}")

    ended = muster(*words)

    assert ended.returncode == 3
    assert f"the books of cluster {CLUSTER} are wrong (head is not passed through): transaction 4 has" in ended.stderr
    right = books[1].heads[1].head.digest
    assert muster(*words[:-1], f"4:{right}").returncode == 0


WRONG = {
    "no such file": (("--heads", "/no/such/file"), "--heads: /no/such/file: No such file"),
    "a file that is no text": (("--heads", "{binary}"), "is no text"),
    "a file that has no heads": (("--heads", "{keys}"), "no signed head"),
    "heads without keys": (("--heads", "{lines}"), "--keys: the heads are signed by"),
    "keys that are none": (("--heads", "{lines}", "--keys", "{lines}"), "--keys: "),
    "heads of another cluster": (
        ("--heads", "{lines}", "--keys", "{keys}", "--cluster", "west"),
        "has no head of cluster 'west'; it has east",
    ),
    "an expectation that is none": (("--expect", "4:abc"), "--expect: '4:abc' is no transaction and digest"),
    "an acceptance that is none": (("--accept", "9-4"), "--accept: '9-4' is no transaction"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_compared_names_the_option_and_the_remedy(
    words: tuple[str, ...], said: str, books: tuple[str, KeptHeads], files: tuple[Path, Path], muster: Muster
) -> None:
    binary = files[0].with_name("binary")
    binary.write_bytes(b"\xff")
    places = {"lines": files[0], "keys": files[1], "binary": binary}
    cluster = () if "--cluster" in words else ("--cluster", CLUSTER)

    ended = muster("ledger", "verify", "-d", books[0], *cluster, *(word.format(**places) for word in words))

    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())


def test_heads_are_printed_with_whether_their_signatures_are_right(
    books: tuple[str, KeptHeads], tmp_path: Path, muster: Muster
) -> None:
    file = tmp_path / "heads.json"
    document = head_document.to_json(books[1])
    document["heads"][0]["sequence"] = 3
    file.write_text(json.dumps(document))

    text, again = (muster("ledger", "heads", "--heads", str(file), "--format", form) for form in ("text", "json"))

    assert "it is not signed by the key" in text.stdout
    assert f"right, key {RING.keys[0].id}" in text.stdout
    assert json.loads(again.stdout) == document


def test_no_heads_at_all_is_an_error(tmp_path: Path, muster: Muster) -> None:
    file = tmp_path / "heads.json"
    file.write_text("")

    ended = muster("ledger", "heads", "--heads", str(file))

    assert ended.returncode == 2
    assert "there are no heads" in ended.stderr


def test_the_page_checks_signatures_without_muster(books: tuple[str, KeptHeads]) -> None:
    """docs/ledger.md shows how, and nothing of ours is imported there."""
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    [code] = [part.partition("```")[0] for part in page.split("```python")[1:] if "Ed25519PublicKey" in part]
    space: dict[str, object] = {}
    exec(code, space)  # noqa: S102 - our own page
    check = space["check"]
    assert callable(check)

    document = head_document.to_json(books[1])
    check(document)
    document["heads"][0]["sequence"] += 1
    with pytest.raises(InvalidSignature):
        check(document)
