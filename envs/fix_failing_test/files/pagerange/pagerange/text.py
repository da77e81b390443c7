def parse(text, last):
    """Read a page list such as "1-3,5,8-"; an open end means `last`."""
    ranges = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        head, dash, tail = part.partition("-")
        first = int(head) if head.strip() else 1
        if not dash:
            end = first
        else:
            end = int(tail) if tail.strip() else last
        if first < 1 or end > last or end < first:
            raise ValueError(f"no such pages: {part}")
        ranges.append((first, end))
    return ranges


def format_ranges(ranges):
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
