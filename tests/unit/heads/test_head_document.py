"""Heads and keys as text, in every form that they are kept in."""

import json

import pytest

from admission.errors import FixError
from admission.heads import head_document, key_history, signed_head
from admission.heads.head_document import KeptHeads
from tests.unit.heads.builders import RING, a_signed_head

HEADS = (a_signed_head(1), a_signed_head(2))
KEPT = KeptHeads(heads=HEADS, keys=RING.keys)
LINES = b"".join(map(signed_head.to_line, HEADS)).decode()


def config_map() -> str:
    data = {key: value.decode() for key, value in head_document.to_entries(KEPT).items()}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": data})


FORMS = {
    "the JSON of `muster ledger heads`": (json.dumps(head_document.to_json(KEPT)), KEPT),
    "a ConfigMap as kubectl prints it": (config_map(), KEPT),
    "a file that heads were appended to": (LINES, KeptHeads(heads=HEADS)),
    "one head": (LINES.splitlines()[0], KeptHeads(heads=HEADS[:1])),
    "a log of the controller": (
        "\n".join(
            json.dumps(line)
            for line in (
                {"event": "this process leads", "epoch": 3},
                *({"event": "a head", "head": signed_head.to_json(signed)} for signed in HEADS),
            )
        ),
        KeptHeads(heads=HEADS),
    ),
    "nothing": ("", KeptHeads()),
}


@pytest.mark.parametrize(("text", "kept"), FORMS.values(), ids=FORMS)
def test_heads_are_read_in_every_form_that_they_are_kept_in(text: str, kept: KeptHeads) -> None:
    assert head_document.from_text(text) == kept


def test_entries_of_the_config_map_are_read_as_written() -> None:
    assert head_document.from_entries(head_document.to_entries(KEPT)) == KEPT
    assert head_document.from_entries({}) == KeptHeads()


WRONG = {
    "a line that is no JSON": (f"{LINES}what?\n", "line 3"),
    "a line that is no head": (f'{LINES}{{"a": 1}}\n', "line 3: it is no signed head"),
    "an object that is none": ('{"a": 1}', "line 1: it is no signed head"),
    "keys that are none": ('{"heads": [], "keys": [1]}', "keys of heads"),
    "a ConfigMap of something else": ('{"kind": "ConfigMap", "data": {"keys.json": "{"}}', "is not JSON"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_has_no_heads_is_named_by_its_line(text: str, words: str) -> None:
    with pytest.raises(FixError, match=words):
        head_document.from_text(text)


def test_more_heads_than_can_be_checked_in_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_document, "MOST", 1)

    with pytest.raises(FixError, match="more than 1 heads"):
        head_document.from_text(LINES)


def test_keys_are_read_alone_or_from_what_has_heads_too() -> None:
    alone = json.dumps(key_history.to_json(RING.keys))

    assert head_document.keys_from_text(alone) == RING.keys
    assert head_document.keys_from_text(config_map()) == RING.keys
    for text in ("{", LINES.splitlines()[0]):
        with pytest.raises(FixError):
            head_document.keys_from_text(text)
