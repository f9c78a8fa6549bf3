"""What claims request, in words and numbers."""

from collections.abc import Iterable

from admission.dra.requests.requests import ParsedClaim, ParsedRequest, RequestAlternatives


def text(request: RequestAlternatives) -> str:
    """Return a request in words."""
    return " or ".join(
        f"{'all' if not option.plain and not option.admin else option.count} of class {option.parsed.device_class}"
        for option in request.options
    )


def needs(claims: Iterable[ParsedClaim]) -> dict[ParsedRequest, int]:
    """Return the least devices needed per parsed request: summed over requests without alternatives, else one's own."""
    needs: dict[ParsedRequest, int] = {}
    for claim in claims:
        for request in claim.requests:
            if len(request.options) == 1 and request.options[0].plain:
                parsed = request.options[0].parsed
                needs[parsed] = needs.get(parsed, 0) + request.options[0].count
            else:
                for option in request.options:
                    least = option.count if option.plain else 1
                    needs[option.parsed] = max(needs.get(option.parsed, 0), least)
    return needs
