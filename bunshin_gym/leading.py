"""Whether steps of a call tree lead to the same place, as far as that can be told."""

from __future__ import annotations

from bunshin_gym.node import Node, Step
from bunshin_gym.state import StateDigest

__all__ = ["contradicts", "leads_to", "meet"]


def leads_to(known: Step, target: Node | None, digest: StateDigest | None) -> bool:
    """Whether a recalled step leads to where the call has led now: to a node that is there, or to a new one."""
    if known.target is target:
        return True
    state = known.target.state
    return target is not known.source and digest is not None and state is not None and state.loose == digest.loose


def contradicts(known: Step, digest: StateDigest) -> bool:
    """Whether a call has led to another state than the known one, as far as that can be compared."""
    state = known.target.state
    return state is not None and state.loose != digest.loose and digest.contradicts(state.parts)


def meet(one: Step, other: Step) -> bool:
    """Whether two steps lead to the same state, or both back to where they were made."""
    if one.target is one.source or other.target is other.source:
        return one.target is one.source and other.target is other.source
    states = one.target.state, other.target.state
    return states[0] is not None and states[1] is not None and states[0].loose == states[1].loose
