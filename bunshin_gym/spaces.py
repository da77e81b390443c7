"""UnicodeText: the space of all text up to a length.

`gymnasium.spaces.Text` keeps its alphabet: with one that covers Unicode it takes seconds to build and checks each
character of each observation. Here membership is "a str, and short enough", whatever the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector.utils import create_shared_memory

__all__ = ["UnicodeText"]

_PRINTABLE = "".join(map(chr, range(32, 127)))
_SAMPLE_LENGTH = 32


class UnicodeText(Text):
    """All strings of `min_length` to `max_length` characters (code points).

    `samples`, if given, is what `sample()` draws from: an action space whose samples are executed by checkers and
    random agents should hold harmless ones. Without it a sample is a short printable ASCII string.
    """

    def __init__(
        self,
        max_length: int,
        *,
        min_length: int = 0,
        samples: Sequence[str] = (),
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(max_length, min_length=min_length, charset=_PRINTABLE, seed=seed)
        self.samples = tuple(samples)
        for text in self.samples:
            if not self.contains(text):
                raise ValueError(f"cannot build UnicodeText: the sample {text!r} is not in the space")

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string of permitted length: O(1)."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw one of `samples`, or a short printable string; masks over an alphabet make no sense here."""
        if mask is not None or probability is not None:
            raise ValueError("cannot sample UnicodeText with a mask: it has no finite alphabet")
        if self.samples:
            return self.samples[int(self.np_random.integers(len(self.samples)))]
        longest = min(self.max_length, max(self.min_length, _SAMPLE_LENGTH))
        length = int(self.np_random.integers(self.min_length, longest + 1))
        picks = self.np_random.integers(len(_PRINTABLE), size=length)
        return "".join(_PRINTABLE[i] for i in picks)

    @property
    def is_np_flattenable(self) -> bool:
        """False: there is no finite alphabet to index into."""
        return False

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UnicodeText)
            and self.min_length == other.min_length
            and self.max_length == other.max_length
            and self.samples == other.samples
        )


@create_shared_memory.register(UnicodeText)
def _no_shared_memory(space: UnicodeText, n: int = 1, ctx: Any = None) -> Any:
    # AsyncVectorEnv decodes a Text buffer once, at the start, and returns that stale text for ever. An error is better:
    # AsyncVectorEnv turns this one into advice to pass shared_memory=False.
    raise CustomSpaceError(
        "UnicodeText cannot live in shared memory: pass shared_memory=False to AsyncVectorEnv, or use "
        "gymnasium.make_vec(...), which needs no worker processes"
    )
