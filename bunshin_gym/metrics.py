"""Statistics for Prometheus: `pip install bunshin_gym[metrics]`.

    with bunshin_gym.metrics.serve(envs, port=9464) as metrics:      # http://127.0.0.1:9464/metrics
        …

What is served is read when it is asked for: nothing is counted twice, and nobody who asks costs nothing. Counters are
those of `Stats`, as `bunshin_NAME_total`; a pool adds what it is doing as gauges. Only this machine can ask, unless
another address is given: there is no authentication.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from bunshin_gym.errors import BunshinError
from bunshin_gym.stats import Stats

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Collector", "Server", "serve"]

_HELP = {
    "calls": "Tool calls that were asked for.",
    "hits": "Calls answered from the tree.",
    "waits": "Calls answered by a sibling that was running the same one.",
    "misses": "Calls that were run.",
    "drafts": "Calls answered by a draft.",
    "prepared": "Workspaces prepared from nothing.",
    "forks": "Workspaces forked from a snapshot.",
    "snapshots": "Snapshots made.",
    "snapshots_evicted": "Snapshots let go of.",
    "replays": "Calls run again to bring a workspace to where its rollout stands.",
    "replay_mismatches": "Replayed calls that gave something else than recorded.",
    "timeouts": "Calls ended by their time limit.",
    "lost": "Workspaces lost.",
    "verified": "Verdicts asked for.",
    "verdicts_shared": "Verdicts answered by a sibling's.",
    "invalid": "Actions that were no calls.",
    "overdue": "Steps given up because they passed their deadline.",
    "hits_by_state": "Hits on a call made by another history of the same state.",
    "audits": "Hits run again and compared.",
    "false_hits": "Audited hits that gave something else.",
    "saved_seconds": "Seconds that the calls had taken which were answered without being run.",
    "saved_by_state": "Of the saved seconds, those of hits by state.",
}


class Watched(Protocol):
    """An environment, a vector environment, a pool, an executor."""

    @property
    def stats(self) -> Stats: ...


class Collector:
    """Turns statistics into metrics: for any registry of prometheus_client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[tuple[dict[str, str], Stats, Any]] = []

    def watch(self, what: Stats | Watched, **labels: str) -> None:
        """Serve these statistics as well. Everything watched needs the same labels, and values of its own for them.

        Raises ValueError where it has others, or the same values as another.
        """
        stats = what if isinstance(what, Stats) else what.stats
        with self._lock:
            for others, _, _ in self._watched:
                if set(others) != set(labels):
                    raise ValueError(f"cannot watch {what!r}: its labels are {sorted(labels)}, not {sorted(others)}")
                if others == labels:
                    raise ValueError(f"cannot watch {what!r}: something else is watched with the labels {labels}")
            self._watched.append((labels, stats, what))

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            watched = list(self._watched)
        names = list(watched[0][0]) if watched else []
        values = [([labels[name] for name in names], stats.as_dict()) for labels, stats, _ in watched]
        for field in fields(Stats):
            if field.type not in ("int", "float"):
                continue
            unit = "_seconds" if field.type == "float" and not field.name.endswith("_seconds") else ""
            text = _HELP.get(field.name, f"{field.name.replace('_', ' ')}: see bunshin_gym.Stats.".capitalize())
            counter = CounterMetricFamily(f"bunshin_{field.name}{unit}", text, labels=names)
            for own, counts in values:
                counter.add_metric(own, counts[field.name])
            yield counter
        stages = CounterMetricFamily(
            "bunshin_stage_seconds", "Seconds by stage, over threads.", labels=[*names, "stage"]
        )
        for own, counts in values:
            for stage, seconds in counts["seconds"].items():
                stages.add_metric([*own, stage], seconds)
        yield stages
        loads = [([labels[name] for name in names], what.load) for labels, _, what in watched if hasattr(what, "load")]
        for name, text in (
            {
                "rollouts": "Rollouts that are open.",
                "running": "Steps that run.",
                "waiting": "Steps that wait for their turn.",
            }.items()
            if loads
            else ()
        ):
            gauge = GaugeMetricFamily(f"bunshin_pool_{name}", text, labels=names)
            for own, load in loads:
                gauge.add_metric(own, getattr(load, name))
            yield gauge


class Server:
    """Answers http://ADDRESS:PORT/metrics until it is closed. A context manager."""

    def __init__(self, collector: Collector, port: int, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise BunshinError("metrics need prometheus_client: pip install bunshin_gym[metrics]") from error
        self.collector = collector
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise BunshinError(f"cannot serve metrics on {address} port {port}: {error}") from error
        self.port = int(self._server.server_port)
        self.address = address

    def close(self) -> None:
        """Answer no more. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def serve(*watched: Stats | Watched, port: int = 9464, address: str = "127.0.0.1", **labels: str) -> Server:
    """Serve the statistics of an environment, a vector environment, a pool or an executor; `watch` more later.

    `port` 0 takes a free one: see `Server.port`. Raises BunshinError where prometheus_client is not installed or the
    port is taken.
    """
    collector = Collector()
    for one in watched:
        collector.watch(one, **labels)
    return Server(collector, port, address)
