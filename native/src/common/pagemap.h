/* The PAGEMAP_SCAN ioctl (Linux 6.7); older headers do not have it. */
#ifndef BUNSHIN_COMMON_PAGEMAP_H
#define BUNSHIN_COMMON_PAGEMAP_H

#include <stdint.h>
#include <sys/ioctl.h>

enum {
    PAGEMAP_WPALLOWED = 1,
    PAGEMAP_WRITTEN = 2,
    PAGEMAP_FILE = 4,
    PAGEMAP_PRESENT = 8,
    PAGEMAP_SWAPPED = 16,
    PAGEMAP_ZERO = 32,
    PAGEMAP_HUGE = 64,
    PAGEMAP_GUARD = 256, /* Linux 6.15 */
};

struct pagemap_region {
    uint64_t start, end, categories;
};

struct pagemap_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, struct pagemap_scan)

#endif
