def count_pages(ranges):
    """The number of pages in merged ranges."""
    return sum(last - first + 1 for first, last in ranges)
