def merge(ranges):
    """Sort (first, last) pairs and join those that touch or overlap."""
    merged = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged
