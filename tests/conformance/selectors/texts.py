"""Random texts that functions of the libraries parse: nearly right ones, and right ones at their limits."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import yaml

from tests.conformance.selectors.fixture import AMOUNTS

FORMATS = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "dns1123LabelPrefix", "dns1123SubdomainPrefix"),
    *("dns1035LabelPrefix", "qualifiedName", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
)
DOMAINS = ('"gpu.example.com"', '"other.example.com"', '"gpu.example.com"', '"none.example.com"')

TEXTS: Mapping[str, Sequence[str]] = yaml.safe_load((Path(__file__).parents[1] / "data" / "cel_texts.yaml").read_text())
"""By what they are."""


def quoted(text: str) -> str:
    """Return the text as a literal of CEL."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\x00": "\\x00"}
    return '"' + "".join(escapes.get(one, one) for one in text) + '"'


def _one_of(choices: Sequence[str]) -> Callable[[Random], str]:
    def draw(random: Random) -> str:
        text = random.choice(choices)
        if text and random.random() < 0.15:
            text = _changed(text, random.choice(choices), random)
        return quoted(text)

    return draw


def _changed(text: str, other: str, random: Random) -> str:
    """Return the text with a character gone or added, or with the end of another."""
    place = random.randrange(len(text))
    match random.randrange(3):
        case 0:
            return text[:place] + text[place + 1 :]
        case 1:
            return text[:place] + random.choice("0a.-+:/%[] é\u00a0_~@?#&=") + text[place:]
        case _:
            return text[:place] + other[random.randrange(len(other) + 1) :]


_string, _pattern, _zone = _one_of(TEXTS["words"]), _one_of(TEXTS["patterns"]), _one_of(TEXTS["zones"])
_ip, _url, _version = _one_of(TEXTS["ips"]), _one_of(TEXTS["urls"]), _one_of(TEXTS["versions"])
_time, _span, _amount = _one_of(TEXTS["times"]), _one_of(TEXTS["spans"]), _one_of(AMOUNTS)


def _cidr(random: Random) -> str:
    address = random.choice(TEXTS["ips"])
    return quoted(f"{address}/{random.choice(('0', '8', '16', '24', '32', '33', '64', '128', '129', '08', '-1', ''))}")


def _format(random: Random) -> str:
    return quoted("".join(random.choice(TEXTS["directives"]) for _ in range(random.choice((1, 1, 2)))))


def _format_name(random: Random) -> str:
    return quoted(random.choice((*FORMATS, "none", "")))


LEAVES: Mapping[str, Callable[[Random], str]] = {
    "string": _string,
    "duration": lambda random: f"duration({_span(random)})",
    "timestamp": lambda random: f"timestamp({_time(random)})",
    "kubernetes.Quantity": lambda random: f"quantity({_amount(random)})",
    "kubernetes.Semver": lambda random: f"semver({_version(random)}{random.choice(('', '', ', true', ', false'))})",
    "net.IP": lambda random: f"ip({_ip(random)})",
    "net.CIDR": lambda random: f"cidr({_cidr(random)})",
    "kubernetes.URL": lambda random: f"url({_url(random)})",
}
"""Values written as text, by type."""

ARGUMENTS: Mapping[tuple[str, int], Callable[[Random], str]] = {
    **{(name, 1): _pattern for name in ("matches", "find", "findAll")},
    **{(name, 0): _version for name in ("semver", "isSemver")},
    **{(name, 0): _amount for name in ("quantity", "isQuantity")},
    **{(name, 0): _ip for name in ("isIP", "ip.isCanonical")},
    **{
        (f"get{part}", 1): _zone
        for part in ("FullYear", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Month", "Hours")
    },
    ("containsIP", 1): _ip,
    ("isCIDR", 0): _cidr,
    ("containsCIDR", 1): _cidr,
    ("isURL", 0): _url,
    ("duration", 0): _span,
    ("timestamp", 0): _time,
    ("format", 0): _format,
    ("format.named", 0): _format_name,
}
"""What an argument of a function, by its place, mostly is: a text, where the overload takes one."""
