"""Signals are only noted; pauses grow, and begin anew after a good life."""

import signal

from orchestrator.worker import signals
from orchestrator.worker.signals import Pauses, StopRequest


def test_pauses_grow_up_to_a_limit_and_begin_anew_after_a_good_life():
    pauses = Pauses()
    assert [pauses.after(1.0) for _ in range(8)] == [
        0.5,
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        30.0,
        30.0,
    ]
    assert pauses.after(61.0) == 0.5


def test_the_echo_of_a_signal_is_not_an_order_to_stop_at_once():
    stop = StopRequest()
    stop.note(signal.SIGTERM, None)
    stop.note(signal.SIGTERM, None)
    assert stop.requested
    assert not stop.at_once


def test_a_second_signal_is_an_order_to_stop_at_once(monkeypatch):
    monkeypatch.setattr(signals, "SECOND_SIGNAL_SECONDS", 0.0)
    stop = StopRequest()
    assert not stop.requested
    stop.note(signal.SIGTERM, None)
    stop.note(signal.SIGINT, None)
    assert stop.at_once


def test_a_pause_ends_when_asked_to_stop():
    stop = StopRequest()
    assert not stop.pause(0.0, meanwhile=lambda: None)
    stop.note(signal.SIGTERM, None)
    assert stop.pause(60.0, meanwhile=lambda: None)


def test_a_pause_is_no_silence():
    called = []
    assert not StopRequest().pause(0.5, meanwhile=lambda: called.append(1))
    assert len(called) >= 2
