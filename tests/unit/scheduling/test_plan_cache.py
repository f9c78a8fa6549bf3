"""Proofs that there is no plan, and the messages of old ones."""

from admission.api.muster.queues import PlacementMode
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.metering import device_meters
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.cache.plan_cache import Basis, InfeasibilityProof, PlanCache, Question
from admission.scheduling.placement.proposal import Proved
from admission.scheduling.placement.protection import NOTHING

BUSY = Proved(HoldReason.DEVICES_BUSY, "the most that any node has free is 1")
QUESTION: Question = ((), PlacementMode.PIN, None)
BASIS = Basis(
    cluster=ClusterState(), usage={}, in_the_end=None, queues={}, meters=device_meters.NONE, steps=1, protection=NOTHING
)


def an_old_proof() -> tuple[PlanCache, InfeasibilityProof]:
    """Return a cache in a quiet cycle that is to renew this proof."""
    cache = PlanCache()
    cache.begin(BASIS)
    proof = cache.prove("a kind of gangs", BUSY, QUESTION, BASIS.cluster)
    proof.stale = 1
    cache.begin(BASIS)
    assert cache.old_question is QUESTION
    return cache, proof


def test_an_old_proof_that_says_the_same_again_stays_the_same_object_so_that_verdicts_stand() -> None:
    cache, proof = an_old_proof()

    cache.renew(Proved(BUSY.reason, BUSY.message))

    assert cache._proofs == {"a kind of gangs": proof}
    assert not cache.is_stale


def test_an_old_proof_in_other_words_is_another_object_so_that_verdicts_are_renewed() -> None:
    cache, proof = an_old_proof()

    cache.renew(Proved(BUSY.reason, "the most that any node has free is 2"))

    (renewed,) = cache._proofs.values()
    assert renewed is not proof
    assert renewed.hold.message == "the most that any node has free is 2"
    assert not cache.is_stale


def test_an_old_question_without_a_proof_any_more_is_asked_again_for_each_gang() -> None:
    for answer in (None, Hold(HoldReason.SEARCH_LIMIT, "neither a plan nor a proof was found")):
        cache, _ = an_old_proof()

        cache.renew(answer)

        assert not cache._proofs
