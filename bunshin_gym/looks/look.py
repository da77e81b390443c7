"""What one call may look at, beside what the digest of a workspace's state holds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING", "Look"]


@dataclass(frozen=True)
class Look:
    """`outside`: what outside the state it looks at ("clock", "randomness", "network", …), or "".

    `strict`: what a digest leaves out and it can notice ("times", "inodes"), or "". `leaves_running`: whether it leaves
    something behind that changes the workspace on its own. `unordered`: whether its lines may come in another order, as
    directories list their entries: that depends on the layers of the file system they lie in. `unread`: a program that
    it runs and of which nothing is known (a script, a test suite, a command of no table), or "": such a call is taken
    to look at nothing, until its result or an audit shows otherwise.
    """

    outside: str = ""
    strict: str = ""
    leaves_running: bool = False
    unordered: bool = False
    unread: str = ""

    def __or__(self, other: Look) -> Look:
        """Both looks; the first word stays."""
        return Look(
            self.outside or other.outside,
            self.strict or other.strict,
            self.leaves_running or other.leaves_running,
            self.unordered or other.unordered,
            self.unread or other.unread,
        )


NOTHING = Look()
