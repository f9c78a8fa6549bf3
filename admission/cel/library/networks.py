"""IP addresses and CIDR networks: k8s.io/apiserver pkg/cel/library/ip.go and cidr.go over Go's net/netip."""

import ipaddress
import re

from admission.cel.core import errors
from admission.cel.core.declarations import Overload, function, member
from admission.cel.core.values import CIDR, IP

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PREFIX = re.compile(r"0|[1-9][0-9]{0,2}")


def parse_ip(text: str) -> IP:
    """Parse an address without a zone, other than an IPv4-mapped IPv6 address. Raises EvaluationError."""
    return IP(_address(text, f'IP Address "{text[:60]}" parse error during conversion from string'))


def parse_cidr(text: str) -> CIDR:
    """Parse a network, keeping its host bits. Raises EvaluationError."""
    message = "network address parse error during conversion from string"
    before, slash, bits = text.rpartition("/")
    if not slash or not _PREFIX.fullmatch(bits):
        raise errors.EvaluationError(message)
    address = _address(before, message)
    if int(bits) > address.max_prefixlen:
        raise errors.EvaluationError(message)
    return CIDR(address, int(bits))


def _address(text: str, message: str) -> Address:
    try:
        address = ipaddress.ip_address(text) if "%" not in text and text.isascii() else None
    except ValueError:
        address = None
    if address is None or (address.version == 6 and address.ipv4_mapped is not None):
        raise errors.EvaluationError(message)
    return address


def is_ipv6(text: str) -> bool:
    """Whether the text is an IPv6 address, including an IPv4-mapped one."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def _is_ip(text: str) -> bool:
    try:
        parse_ip(text)
    except errors.EvaluationError:
        return False
    return True


def _is_cidr(text: str) -> bool:
    try:
        parse_cidr(text)
    except errors.EvaluationError:
        return False
    return True


def ip_text(address: IP) -> str:
    return str(address.address)


def cidr_text(network: CIDR) -> str:
    return f"{network.address}/{network.prefix}"


def _masked(network: CIDR) -> CIDR:
    return CIDR(_network(network).network_address, network.prefix)


def _network(network: CIDR) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network((network.address, network.prefix), strict=False)


def _contains_ip(network: CIDR, address: IP) -> bool:
    return address.address.version == network.address.version and address.address in _network(network)


def _contains_ip_text(network: CIDR, text: str) -> bool:
    if not _is_ip(text):
        raise errors.no_such_overload()
    return _contains_ip(network, parse_ip(text))


def _contains_cidr(network: CIDR, other: CIDR) -> bool:
    if network.address.version != other.address.version or network.prefix > other.prefix:
        return False
    return other.address in _network(network)


def _contains_cidr_text(network: CIDR, text: str) -> bool:
    return _contains_cidr(network, parse_cidr(text))


def _is_link_local_multicast(ip: IP) -> bool:
    """Whether it is in 224.0.0.0/24, or in ff02::/16 with any flags."""
    packed = ip.address.packed
    if ip.address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _is_link_local_unicast(ip: IP) -> bool:
    packed = ip.address.packed
    if ip.address.version == 4:
        return packed[:2] == b"\xa9\xfe"
    return packed[0] == 0xFE and packed[1] & 0xC0 == 0x80


def _is_global_unicast(ip: IP) -> bool:
    """Whether Go calls it global: private addresses too, but no broadcast, loopback, multicast, link-local address."""
    address = ip.address
    if address.version == 4 and address.packed == b"\xff\xff\xff\xff":
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or _is_link_local_unicast(ip))


OVERLOADS: tuple[Overload, ...] = (
    function("ip", "string -> IP", parse_ip),
    function("isIP", "string -> bool", _is_ip),
    function("ip.isCanonical", "string -> bool", lambda text: ip_text(parse_ip(text)) == text),
    function("string", "IP -> string", ip_text),
    member("family", "IP -> int", lambda ip: ip.address.version),
    member("isUnspecified", "IP -> bool", lambda ip: ip.address.is_unspecified),
    member("isLoopback", "IP -> bool", lambda ip: ip.address.is_loopback),
    member("isLinkLocalMulticast", "IP -> bool", _is_link_local_multicast),
    member("isLinkLocalUnicast", "IP -> bool", _is_link_local_unicast),
    member("isGlobalUnicast", "IP -> bool", _is_global_unicast),
    function("cidr", "string -> CIDR", parse_cidr),
    function("isCIDR", "string -> bool", _is_cidr),
    function("string", "CIDR -> string", cidr_text),
    member("containsIP", "CIDR, string -> bool", _contains_ip_text),
    member("containsIP", "CIDR, IP -> bool", _contains_ip),
    member("containsCIDR", "CIDR, string -> bool", _contains_cidr_text),
    member("containsCIDR", "CIDR, CIDR -> bool", _contains_cidr),
    member("ip", "CIDR -> IP", lambda network: IP(network.address)),
    member("masked", "CIDR -> CIDR", _masked),
    member("prefixLength", "CIDR -> int", lambda network: network.prefix),
)
