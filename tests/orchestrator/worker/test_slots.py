"""Slots are counted where no death can make the count drift."""

import multiprocessing
import os
import random
import signal
import time
from uuid import uuid4

import pytest

from checkpoints.queue.leases import Claim
from orchestrator.worker.slots import Slots

fork = multiprocessing.get_context("fork")


def a_claim(epoch: int = 1) -> Claim:
    return Claim(uuid4(), epoch)


def in_a_child(act):
    """The exit code of a process forked from here that does this."""
    child = fork.Process(target=act)
    child.start()
    child.join(10)
    return child.exitcode


def test_a_claim_uses_one_slot_until_it_is_left():
    slots = Slots(2)
    claim = a_claim()
    slots.claim(claim)
    assert slots.free() == 1
    assert slots.busy() == 0
    assert slots.take(claim)
    assert slots.free() == 1
    assert slots.busy() == 1
    assert slots.leave(claim)
    assert slots.free() == 2
    assert slots.busy() == 0


def test_no_more_is_claimed_than_there_are_slots():
    slots = Slots(1)
    slots.claim(a_claim())
    with pytest.raises(LookupError):
        slots.claim(a_claim())


def test_a_withdrawn_claim_cannot_be_taken_any_more():
    slots = Slots(1)
    claim = a_claim()
    slots.claim(claim)
    assert slots.withdraw(claim)
    assert not slots.take(claim)
    assert slots.free() == 1


def test_a_claim_that_was_begun_cannot_be_withdrawn():
    slots = Slots(1)
    claim = a_claim()
    slots.claim(claim)
    assert slots.take(claim)
    assert not slots.withdraw(claim)


def test_an_older_epoch_of_the_same_run_has_no_slot():
    slots = Slots(1)
    claim = a_claim(epoch=2)
    slots.claim(claim)
    assert not slots.take(Claim(claim.id, 1))
    assert slots.take(claim)


def test_a_slot_is_left_once_only():
    slots = Slots(1)
    claim = a_claim()
    slots.claim(claim)
    slots.take(claim)
    assert slots.leave(claim)
    slots.claim(a_claim())
    assert not slots.leave(claim)
    assert slots.free() == 0


def test_a_process_cannot_leave_the_slot_of_another():
    slots = Slots(1)
    claim = a_claim()
    slots.claim(claim)
    slots.take(claim)
    assert in_a_child(lambda: os._exit(slots.leave(claim))) == 0
    assert slots.busy() == 1


def test_what_a_dead_process_held_is_freed_and_nothing_else():
    slots = Slots(3)
    of_the_dead = a_claim()
    ours = a_claim()
    waiting = a_claim()
    for claim in (of_the_dead, ours, waiting):
        slots.claim(claim)
    assert in_a_child(lambda: os._exit(slots.take(of_the_dead))) == 1
    slots.take(ours)
    assert slots.free_all_but({os.getpid()}) == 1
    assert slots.free_all_but({os.getpid()}) == 0
    assert slots.free() == 1
    assert slots.busy() == 1
    assert [job.claim for job in slots.unbegun()] == [waiting]


def test_a_process_killed_while_it_holds_the_lock_blocks_nobody():
    slots = Slots(1)

    def die_inside():
        with slots._locked():
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(die_inside) == -signal.SIGKILL
    slots.claim(a_claim())
    assert slots.free() == 0


def test_kills_at_any_moment_never_make_the_count_drift():
    slots = Slots(3)
    claims = [a_claim(epoch) for epoch in range(3)]
    for _ in range(60):
        children = [
            fork.Process(target=_take_and_leave, args=(slots, claim))
            for claim in claims
        ]
        for child in children:
            child.start()
        time.sleep(random.uniform(0.0, 0.01))
        for child in children:
            child.kill()
            child.join()
        slots.free_all_but(set())
        for job in slots.unbegun():
            assert slots.withdraw(job.claim)
        assert slots.free() == 3


def _take_and_leave(slots, claim):
    while True:
        slots.claim(claim)
        slots.take(claim)
        slots.leave(claim)
