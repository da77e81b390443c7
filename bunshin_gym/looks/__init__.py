"""What a call looks at beside the workspace's state: guessed from its text, and seen in its result."""

from bunshin_gym.looks.text import agree, cacheable, seen, strict

__all__ = ["agree", "cacheable", "seen", "strict"]
