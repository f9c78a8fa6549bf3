"""What is JSON as an API server writes it, and what is not."""

import json
from typing import Any

import pytest

from admission.api.values import strict_json
from admission.errors import JsonError

REFUSED = {
    "a key that comes twice": b'{"a":1,"a":2}',
    "a key that comes twice within": b'{"a":[{"b":{"c":1,"d":2,"c":1}}]}',
    "a key that comes twice, once with an escape": b'{"a":1,"\\u0061":2}',
    "a key that comes twice, beside a quote with an escape": b'{"a":1,"a":"\\u0022\\u0022"}',
    "no number": b'{"a":NaN}',
    "infinity": b"[Infinity]",
    "a number beyond all doubles": b"[1e999]",
    "an integer of very many digits": b"[" + b"9" * 100_000 + b"]",
    "half a surrogate pair": b'"\\ud800"',
    "half a surrogate pair in UTF-8": b'"\xed\xa0\x80"',
    "no UTF-8": b'{"a":"\xff"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a line break in a text": b'"a\nb"',
    "something after the end": b"{} {}",
    "an end that is missing": b'{"a":',
    "nothing": b"",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "very many elements": b"[" + b"1," * 300_000 + b"1]",
    "very many objects": b"[" + b"{}," * 150_000 + b"{}]",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_not_json_as_kubernetes_writes_it_is_refused(text: bytes) -> None:
    with pytest.raises(JsonError) as raised:
        strict_json.decode(text)

    assert 0 < len(str(raised.value)) < 300


TAKEN = {
    "quotes with escapes": (b'{"a\\u0022":"\\u0022","b":"\\""}', {'a"': '"', "b": '"'}),
    "the same key in other objects": (b'[{"a":1},{"a":{"a":2}}]', [{"a": 1}, {"a": {"a": 2}}]),
    "a pair of surrogates": (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
    "digits in a text": (b'"' + b"9" * 400 + b'"', "9" * 400),
    "white space": (b' {\n"a" :\t1 } ', {"a": 1}),
}


@pytest.mark.parametrize(("text", "value"), TAKEN.values(), ids=TAKEN)
def test_unusual_json_is_read(text: bytes, value: Any) -> None:
    assert strict_json.decode(text) == value


def test_a_large_text_with_few_values_is_read() -> None:
    assert strict_json.decode(json.dumps({"a": "x" * 2_000_000}).encode())["a"].startswith("x")
