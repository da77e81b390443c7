#define _GNU_SOURCE
#include "fork/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/pagemap.h"

struct bunshin_error *runs_add(struct runs *runs, uint64_t start, uint64_t end) {
    size_t count = RUN_COUNT(runs);
    if (count && RUN(runs, count - 1).end == start) {
        RUN(runs, count - 1).end = end;
        return NULL;
    }
    struct run run = {start, end};
    return buffer_append(&runs->buffer, &run, sizeof run);
}

static struct bunshin_error *scan_with_ioctl(int pagemap, struct runs *ret, struct runs *ret_guards, bool *ret_unsupported) {
    static struct pagemap_region regions[2048];
    struct pagemap_scan scan = {
        .size = sizeof scan,
        .start = 0,
        .end = ARCH_TASK_END,
        .vec = (uint64_t)(uintptr_t)regions,
        .vec_len = sizeof regions / sizeof *regions,
        .category_inverted = PAGEMAP_FILE | PAGEMAP_ZERO,
        .category_mask = PAGEMAP_FILE | PAGEMAP_ZERO,
        .category_anyof_mask = PAGEMAP_PRESENT | PAGEMAP_SWAPPED,
        .return_mask = PAGEMAP_PRESENT | PAGEMAP_GUARD,
    };
    while (scan.start < scan.end) {
        int found = ioctl(pagemap, PAGEMAP_SCAN_IOCTL, &scan);
        if (found < 0) {
            if (errno == EINVAL && scan.return_mask & PAGEMAP_GUARD) {
                scan.return_mask = PAGEMAP_PRESENT; /* a kernel that cannot tell them apart */
                continue;
            }
            if (errno == ENOTTY || errno == EINVAL) {
                *ret_unsupported = true;
                return NULL;
            }
            return bunshin_error_os("cannot scan pages");
        }
        for (int i = 0; i < found; i++)
            TRY(runs_add(regions[i].categories & PAGEMAP_GUARD ? ret_guards : ret, regions[i].start, regions[i].end));
        /* When the kernel's own buffer filled up on the way, walk_end can lie before what was returned. */
        uint64_t next = scan.walk_end;
        if (found && regions[found - 1].end > next)
            next = regions[found - 1].end;
        if (next <= scan.start)
            break;
        scan.start = next;
    }
    return NULL;
}

/* Before Linux 6.7: one word a page. Zero pages cannot be told apart there and are stored like others. */
static struct bunshin_error *scan_by_reading(int pagemap, const struct mappings *mappings, struct runs *ret, struct runs *ret_guards) {
    static uint64_t words[8192];
    for (size_t m = 0; m < mappings->count; m++) {
        const struct mapping *mapping = &mappings->list[m];
        if (mapping->kind == 'v' || mapping->kind == 'x' || mapping->shared)
            continue;
        for (uint64_t at = mapping->start; at < mapping->end;) {
            uint64_t pages = (mapping->end - at) / ARCH_PAGE;
            if (pages > sizeof words / sizeof *words)
                pages = sizeof words / sizeof *words;
            ssize_t got = pread(pagemap, words, pages * 8, (off_t)(at / ARCH_PAGE * 8));
            if (got <= 0)
                return bunshin_error_os("cannot read pagemap");
            for (ssize_t i = 0; i < got / 8; i++, at += ARCH_PAGE)
                if (words[i] >> 58 & 1)
                    TRY(runs_add(ret_guards, at, at + ARCH_PAGE));
                else if (words[i] >> 62 && !(words[i] >> 61 & 1))
                    TRY(runs_add(ret, at, at + ARCH_PAGE));
        }
    }
    return NULL;
}

struct bunshin_error *scan_pages(struct capture *capture, pid_t pid, const struct mappings *mappings, struct runs *ret,
                                 struct runs *ret_guards) {
    char path[32];
    snprintf(path, sizeof path, "%d/pagemap", pid);
    int pagemap = openat(capture->init->proc, path, O_RDONLY | O_CLOEXEC);
    if (pagemap < 0)
        return bunshin_error_os("cannot open the page map of pid %d", pid);
    bool unsupported = capture->init->without & WITHOUT_PAGEMAP_SCAN;
    struct bunshin_error *error = unsupported ? NULL : scan_with_ioctl(pagemap, ret, ret_guards, &unsupported);
    if (!error && unsupported)
        error = scan_by_reading(pagemap, mappings, ret, ret_guards);
    close(pagemap);
    return error;
}
