import unittest

from pagerange import format_ranges, parse


class TextTest(unittest.TestCase):
    def test_single_pages_and_ranges(self):
        self.assertEqual(parse("1-3, 5", last=9), [(1, 3), (5, 5)])

    def test_open_ends(self):
        self.assertEqual(parse("-2,8-", last=9), [(1, 2), (8, 9)])

    def test_out_of_range(self):
        for text in ("0", "10", "3-2", "5-12"):
            with self.subTest(text), self.assertRaises(ValueError):
                parse(text, last=9)

    def test_format(self):
        self.assertEqual(format_ranges([(1, 3), (5, 5)]), "1-3,5")
