"""Durations by bucket, added by several threads."""

from threading import Thread

from checkpoints.core.histogram import Histogram


def test_each_duration_is_in_one_bucket_and_in_the_sum() -> None:
    histogram = Histogram([1, 10])
    threads = [Thread(target=histogram.add, args=[s]) for s in (0.5, 1.0, 2.0, 20.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.read() == ([2, 1, 1], 23.5)
