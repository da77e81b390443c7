import unittest

from pagerange import count_pages, merge


class MergeTest(unittest.TestCase):
    def test_disjoint(self):
        self.assertEqual(merge([(5, 6), (1, 2)]), [(1, 2), (5, 6)])

    def test_overlap(self):
        self.assertEqual(merge([(1, 4), (3, 6)]), [(1, 6)])

    def test_touching(self):
        self.assertEqual(merge([(1, 3), (4, 6)]), [(1, 6)])

    def test_count(self):
        self.assertEqual(count_pages(merge([(1, 9), (2, 3), (12, 12)])), 10)

    def test_argument_is_left_alone(self):
        ranges = [(5, 6), (1, 2)]
        merge(ranges)
        self.assertEqual(ranges, [(5, 6), (1, 2)])
