import sys

from . import count_pages, format_ranges, merge, parse

ranges = merge(parse(sys.argv[2], last=int(sys.argv[1])))
print(format_ranges(ranges))
print(count_pages(ranges), "pages")
