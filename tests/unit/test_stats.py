from __future__ import annotations

import json
import threading

from bunshin_gym import Stats


def test_counting_from_many_threads_loses_nothing() -> None:
    stats = Stats()

    def count() -> None:
        for _ in range(500):
            stats.add(calls=1, hits=2)
            with stats.timed("run"):
                pass

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (stats.calls, stats.hits) == (4000, 8000)
    assert stats.seconds["run"] > 0


def test_as_dict_is_a_plain_copy() -> None:
    stats = Stats()
    stats.add(calls=1)
    copy = stats.as_dict()
    json.dumps(copy)
    copy["seconds"]["x"] = 1.0
    assert stats.seconds == {}
    assert copy["calls"] == 1
