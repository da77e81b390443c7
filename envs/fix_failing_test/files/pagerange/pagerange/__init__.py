from .count import count_pages
from .merge import merge
from .text import format_ranges, parse

__all__ = ["count_pages", "format_ranges", "merge", "parse"]
