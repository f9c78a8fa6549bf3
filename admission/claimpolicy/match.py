"""The ClaimPolicies that apply to a claim, in order: by the labels of its namespace, and by its queue.

Policies are sorted by `order`, then by name. What is invalid in a policy is not applied, and the rest of it is:
an invalid rule allows nothing unless its failurePolicy is Ignore, an invalid default gives nothing; the policy's status
says so. Compiling is the expensive part, so each version of a policy is compiled once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from admission.api.kubernetes.nodes import Namespace
from admission.api.muster import claim_policies
from admission.api.muster.claim_policies import ClaimPolicy, Conversion
from admission.claimpolicy import defaults as claimpolicy_defaults, rules as claimpolicy_rules
from admission.claimpolicy.defaults import Entry
from admission.claimpolicy.rules import Rulebook
from admission.errors import Problem, RetryError


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A compiled policy. problems: what is not applied of it, and why.

    uncertain: expressions that are applied as they are but are probably wrong.
    """

    policy: ClaimPolicy
    defaults: tuple[Entry, ...]
    rules: Rulebook
    problems: tuple[Problem, ...]
    uncertain: tuple[Problem, ...]

    @property
    def applied(self) -> bool:
        return self.policy.meta.deleted is None


class OwnedConversion(NamedTuple):
    """A conversion, and the name of its policy."""

    policy: str
    conversion: Conversion


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPolicies:
    """The policies for a namespace and a queue, in order, with their contents. conversions: by extended resource."""

    policies: tuple[ClaimPolicy, ...] = ()
    defaults: tuple[Entry, ...] = ()
    rules: tuple[Rulebook, ...] = ()
    conversions: Mapping[str, OwnedConversion] = field(default_factory=dict)


NO_POLICIES = MatchedPolicies()


class Policies:
    """All ClaimPolicies, compiled, while policies and namespaces stay the same. Caches what `choose` returns."""

    def __init__(self, compiled: Mapping[str, CompiledPolicy], namespaces: Mapping[str, Namespace]) -> None:
        self.compiled = compiled
        self._namespaces = namespaces
        self.active: Sequence[CompiledPolicy] = sorted(
            (one for one in compiled.values() if one.applied),
            key=lambda one: one.policy.sort_key,
        )
        """The policies that are applied, in order."""
        self.has_conversions = any(one.policy.conversions for one in self.active)
        """Whether any policy turns extended resources into claims."""
        self.needs_templates = self.has_conversions or any(one.policy.templates for one in self.active)
        """Whether any policy needs templates that Muster writes."""
        self._matched: dict[tuple[str, str], MatchedPolicies] = {}

    @classmethod
    def build(
        cls, policies: Mapping[str, ClaimPolicy], namespaces: Mapping[str, Namespace], previous: Self | None = None
    ) -> Self:
        """Compile all policies. previous: an earlier result; policies that have not changed are taken from it.

        The identity of its policy is the only input of a compiled one. `ReviewCaches` declares the whole result over
        `admission.incremental`.
        """
        earlier = previous.compiled if previous is not None else {}
        compiled = {}
        for name, policy in policies.items():
            same = earlier.get(name)
            compiled[name] = same if same is not None and same.policy is policy else compile_policy(policy)
        return cls(compiled, namespaces)

    def choose(self, namespace: str, queue: str) -> MatchedPolicies:
        """Return the policies for a namespace and a queue, "" for none. Raises RetryError for an unseen namespace."""
        if not self.active:
            return NO_POLICIES
        chosen = self._matched.get((namespace, queue))
        if chosen is None:
            chosen = self._matched[namespace, queue] = self._match(namespace, queue)
        return chosen

    def _match(self, namespace: str, queue: str) -> MatchedPolicies:
        known = self._namespaces.get(namespace)
        if known is None:
            raise RetryError(f"namespace {namespace} has not been seen yet; try again in a moment")
        found = [one for one in self.active if applies(one.policy, known.labels, queue)]
        return MatchedPolicies(
            policies=tuple(one.policy for one in found),
            defaults=tuple(entry for one in found for entry in one.defaults),
            rules=tuple(one.rules for one in found if one.rules.rules),
            conversions={
                conversion.resource: OwnedConversion(one.policy.name, conversion)
                for one in reversed(found)
                for conversion in one.policy.conversions
            },
        )


def compile_policy(policy: ClaimPolicy) -> CompiledPolicy:
    """Compile the CEL of a policy, and collect all its problems."""
    by_entry: dict[str, list[Problem]] = {}
    for problem in policy.problems:
        by_entry.setdefault(claim_policies.entry_of(problem.field), []).append(problem)
    rules, problems = claimpolicy_rules.compile_rules(policy.name, policy.variables, policy.rules, by_entry)
    defaults, more = claimpolicy_defaults.compile_defaults(policy.name, rules.vocabulary, policy.defaults, by_entry)
    uncertain = (*rules.uncertain, *claimpolicy_defaults.uncertain(defaults))
    return CompiledPolicy(
        policy=policy,
        defaults=defaults,
        rules=rules,
        problems=(*policy.problems, *problems, *more),
        uncertain=uncertain,
    )


def applies(policy: ClaimPolicy, labels: Mapping[str, str], queue: str) -> bool:
    """Return whether a policy is for a namespace with these labels and for this queue, "" for no queue."""
    return (not policy.queues or queue in policy.queues) and policy.namespaces.matches(labels)
