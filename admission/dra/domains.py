"""Domains of a topology: the nodes that have one value of a label, as those of a rack, a zone or an NVLink domain.

A gang that shall be together is searched for in one domain after the other. Of domains that nothing tells apart one is
enough. The budget goes round: every domain has a small part of it before one has more, so that a domain that is hard to
judge does not keep the search from one that is easy.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.api.names import NodeName
from admission.api.reasons import Detail
from admission.dra.demands import Gang
from admission.dra.plans import Kind, NoPlan, Plan, Topology
from admission.dra.states import Signature, State
from admission.dra.traits import Traits
from admission.dra.worlds import World

Search = Callable[[Gang, int], Plan | NoPlan]
"""Places a gang, in so many steps at most."""

PARTS = (64, 8, 1)
"""What part of the budget a domain has in the first round, in the second one, in the last one."""

_TOLD = (Kind.FATAL, Kind.INFEASIBLE, Kind.UNPRICED, Kind.POOL_INCOMPLETE, Kind.OVER_QUOTA)
"""Of what is found in several domains the last of these is told: what may still change, before what is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Nodes with one value of the label, to which some pod of the gang may go. likeness: equal where all is equal."""

    value: str
    nodes: frozenset[NodeName]
    free: int
    likeness: Hashable


def of(label: str, gang: Gang, world: World, known: Traits) -> list[Domain]:
    """Return the domains where some pod may go, those with the fewest free devices first: large ones are kept whole."""
    state = State(gang, world, known)
    members: dict[str, list[tuple[NodeName, Signature]]] = {}
    for name, signature in zip(state.names, state.signatures, strict=True):
        value = world.nodes[name].meta.labels.get(label)
        if value is not None:
            members.setdefault(value, []).append((name, signature))
    found = [
        Domain(
            value=value,
            nodes=frozenset(name for name, _ in nodes),
            free=sum(signature.free for _, signature in nodes),
            likeness=frozenset(Counter(signature for _, signature in nodes).items()),
        )
        for value, nodes in members.items()
    ]
    return sorted(found, key=lambda domain: (domain.free, domain.value))


def within(gang: Gang, nodes: frozenset[NodeName]) -> Gang:
    """Return the gang as it is where it may go to these nodes only."""
    return replace(gang, kinds=tuple(replace(kind, nodes=kind.nodes & nodes) for kind in gang.kinds))


def together(  # noqa: PLR0913 - all that an answer depends on
    topology: Topology, gang: Gang, world: World, known: Traits, *, steps: int, search: Search
) -> Plan | NoPlan:
    """Place all pods in one domain, or say why none takes them.

    Where others of the gang have a node already it is their domain. A gang that only prefers to be together is placed
    anywhere then, and its plan says in `apart` why.
    """
    found = of(topology.label, gang, world, known)
    home = _home(topology, world)
    answer = _lost(topology, gang, found, home, world) or _searched(topology, gang, found, home, steps, search)
    if isinstance(answer, Plan) or topology.required:
        return answer
    anywhere = search(gang, steps)
    return replace(anywhere, apart=answer.message) if isinstance(anywhere, Plan) else anywhere


def nearest(topology: Topology, answer: NoPlan) -> Topology:
    """Return the same topology, with the domain first that came nearest in an answer of `together`."""
    return replace(topology, first=str(answer.details.get("domain", "")))


def taken_by(plan: Plan, topology: Topology, world: World) -> tuple[str, frozenset[NodeName]]:
    """Return the domain in which a plan is, and its nodes."""
    value = world.nodes[plan.pods[0].node].meta.labels[topology.label]
    nodes = (name for name, node in world.nodes.items() if node.meta.labels.get(topology.label) == value)
    return value, frozenset(nodes)


def awaited(busy: NoPlan, answer: NoPlan, topology: Topology, value: str) -> NoPlan:
    """Return why a gang waits for a domain that would take it. busy: the same of that domain alone."""
    details = {**busy.details, **{name: answer.details[name] for name in ("topology", "domains", "pods")}}
    if topology.beside:
        lead = f"{topology.label} {value}, where other pods of the gang are already, takes no more of them now"
    else:
        lead = (
            f"no domain of {topology.label} takes the whole gang now; {value} could, and has places for {busy.placed}"
        )
    return replace(busy, message=f"{lead}: {busy.message}", details={**details, "domain": value, "placed": busy.placed})


Home = Mapping[str | None, Sequence[NodeName]]
"""By domain, the nodes where others of the gang are already; None for nodes without the label."""


def _home(topology: Topology, world: World) -> Home:
    """Return where others of the gang are. A node that is gone takes its pods along, and binds nobody."""
    home: dict[str | None, list[NodeName]] = {}
    for name in sorted(topology.beside):
        if name in world.nodes:
            home.setdefault(world.nodes[name].meta.labels.get(topology.label), []).append(name)
    return home


def _lost(topology: Topology, gang: Gang, found: Sequence[Domain], home: Home, world: World) -> NoPlan | None:
    """Return why there is no domain to look at; None where there is one."""
    label = topology.label
    if len(home) > 1 or None in home:
        where = " and ".join(_said(value, nodes[0]) for value, nodes in sorted(home.items(), key=str))
        message = (
            f"other pods of the gang are already in {where}, so that nobody can be in one domain of {label} with all of"
            " them; mend the label, or let the gang end and start anew"
        )
    elif not any(label in node.meta.labels for node in world.nodes.values()):
        message = f"no node has the label {label}; label the nodes, or name a label that they have"
    elif not found:
        message = f"no node where a pod of the gang may go has the label {label}"
    elif home and not any(domain.value in home for domain in found):
        (value,) = home
        message = f"other pods of the gang are already in {label} {value}, and no pod that waits may go to a node there"
    else:
        return None
    details: dict[str, Detail] = {"topology": label, "domains": len(found), "pods": gang.size}
    return NoPlan(kind=Kind.NO_DOMAIN, message=message, details=details)


def _said(value: str | None, node: NodeName) -> str:
    return f"{value} (node {node})" if value is not None else f"none (node {node}, which lacks the label)"


def _searched(  # noqa: PLR0913, PLR0917 - the same
    topology: Topology, gang: Gang, found: Sequence[Domain], home: Home, steps: int, search: Search
) -> Plan | NoPlan:
    """Search one domain after the other."""
    wanted = [domain for domain in found if not home or domain.value in home]
    wanted.sort(key=lambda domain: domain.value != topology.first)
    unlike: dict[Hashable, Domain] = {}
    for domain in wanted:
        unlike.setdefault(domain.likeness, domain)
    left, answers, spent = list(unlike.values()), dict[str, NoPlan](), 0
    for part in PARTS:
        share = max(2 * gang.size, steps // part)
        for domain in left:
            if spent < steps:
                answer = search(within(gang, domain.nodes), min(share, steps - spent))
                spent += answer.steps
                if isinstance(answer, Plan):
                    return replace(answer, steps=spent)
                answers[domain.value] = answer
        left = [domain for domain in left if domain.value not in answers or _has_ended(answers[domain.value])]
    scope = _Scope(label=topology.label, domains=len(wanted), pods=gang.size, is_home=bool(home))
    return replace(scope.ended(steps) if left else scope.told(answers), steps=spent)


def _has_ended(answer: NoPlan) -> bool:
    return answer.kind is Kind.STEPS_ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """What was searched: so many domains of a label, or the one where others of the gang are, for so many pods."""

    label: str
    domains: int
    pods: int
    is_home: bool

    @property
    def details(self) -> dict[str, Detail]:
        return {"topology": self.label, "domains": self.domains, "pods": self.pods}

    @property
    def them(self) -> str:
        return "its pod" if self.pods == 1 else f"all {self.pods} pods together"

    def told(self, answers: Mapping[str, NoPlan]) -> NoPlan:
        """Tell what was found in the domain that comes nearest."""
        _, value, told = max(
            ((_TOLD.index(one.kind), one.placed, at), value, one) for at, (value, one) in enumerate(answers.items())
        )
        details = {**told.details, **self.details, "domain": value}
        if told.kind is Kind.OVER_QUOTA:
            # Who asked what is affordable knows it by its sentence.
            return replace(told, details=details)
        if self.is_home:
            more = "one more pod" if self.pods == 1 else f"{self.pods} more pods"
            message = f"{self.label} {value}, where other pods of the gang are already, does not take {more}"
        elif self.domains == 1:
            message = f"the only domain of {self.label}, {value}, does not take {self.them}"
        else:
            near = f"{value} comes nearest, with places for {told.placed}"
            message = f"none of {self.domains} domains of {self.label} takes {self.them}; {near}"
        return replace(told, message=f"{message}: {told.message}", details={**details, "placed": told.placed})

    def ended(self, steps: int) -> NoPlan:
        """Tell that some domains were not searched to the end."""
        message = (
            f"neither a domain of {self.label} that takes {self.them} nor a proof that there is none was found in"
            f" {steps} steps"
        )
        return NoPlan(kind=Kind.STEPS_ENDED, message=message, details={**self.details, "steps": steps})
