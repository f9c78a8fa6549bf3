"""Judging what keeps kube-scheduler off the devices: when a cycle begins, and wherever much may have happened since."""

from dataclasses import replace
from datetime import datetime

from admission.api.snapshot import Snapshot
from admission.cycle.state.leader import LeaderState
from admission.cycle.steps.catch_up import LOOKING
from admission.scheduling.placement import protection, protection_conditions


def judge(desk: LeaderState, snapshot: Snapshot, now: datetime) -> None:
    """Judge the protection of devices, and have fences stand accordingly. now: by the clock, whatever the books say."""
    fences = desk.ports.fences
    placements = desk.book.placements.values()
    booked = {uid for placement in placements for uid in placement.holdings} if desk.watch.drivers else ()
    watch = protection_conditions.look(desk.watch, snapshot, booked)
    scene = protection.FenceInputs(
        barriers=fences.seen(),
        snapshot=snapshot,
        placements=placements,
        now=now,
        breaches=watch.breaches,
        opened=desk.opened,
    )
    judgement = protection.judge(scene)
    # Whether a gang is under way that kube-scheduler picks devices for is read from pods, too.
    protections = judgement.protections if desk.caught_up else protection.later(judgement.protections, LOOKING)
    desk.judged = now
    desk.protection = protections
    desk.watch = replace(watch, drivers=protections.fenced)
    fences.want(judgement.wanted)


def judge_again(desk: LeaderState) -> None:
    """Judge by what is seen in this moment, as of the time of the last judgement: nothing counts sooner by it."""
    judge(desk, desk.assumed.over(desk.ports.view.snapshot()), desk.judged)
