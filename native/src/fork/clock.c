#define _GNU_SOURCE
#include "fork/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define CLOSELY_NS 500000000ll
#define SECOND 1000000000ll

int64_t clock_boottime(void) {
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* What the namespace that we made our children's has for a clock, which our own may have too. */
static int64_t offset_in(const char *text, const char *clock) {
    const char *at = strstr(text, clock);
    long long seconds = 0, ns = 0;
    if (at)
        (void)sscanf(at + strlen(clock), " %lld %lld", &seconds, &ns);
    return seconds * SECOND + ns;
}

static void split(int64_t ns, long long *ret_seconds, long long *ret_ns) {
    *ret_seconds = ns / SECOND - (ns % SECOND < 0);
    *ret_ns = ns - *ret_seconds * SECOND;
}

/* From here on everything that we clone lives in clocks that are off by so much from ours. Returns an errno. */
static int set_clocks_back(struct rebuild *rebuild, const int64_t offset[2]) {
    char text[256];
    if (rebuild->init->without & WITHOUT_TIME_NAMESPACE)
        return EINVAL;
    if (unshare(CLONE_NEWTIME) != 0)
        return errno;
    int fd = openat(rebuild->init->proc, "self/timens_offsets", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    int failed = got <= 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    fd = failed ? -1 : openat(rebuild->init->proc, "self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (!failed && fd < 0)
        failed = errno;
    if (!failed) {
        text[got] = '\0';
        long long value[4];
        split(offset_in(text, "monotonic") + offset[0], &value[0], &value[1]);
        split(offset_in(text, "boottime") + offset[1], &value[2], &value[3]);
        int length = snprintf(text, sizeof text, "monotonic %lld %lld\nboottime %lld %lld\n", value[0], value[1], value[2], value[3]);
        if (write(fd, text, (size_t)length) != length)
            failed = errno ? errno : EIO;
    }
    if (fd >= 0)
        close(fd);
    return failed;
}

struct bunshin_error *clock_rebuild(struct rebuild *rebuild, struct buffer *report) {
    struct image_header *image = rebuild->image;
    struct init *init = rebuild->init;
    /*
     * What is left of a time is that of the seal's first moment; whatever ran out while it went on did so. So the clocks of a
     * fork go on from its last, and the time between the two has gone by.
     */
    int64_t elapsed = init_now() - image->captured_at, asleep = clock_boottime() - image->captured_boottime;
    rebuild->missed = image->captured_at - image->sealed_at;
    memcpy(init->clock_offset, image->clock_offset, sizeof init->clock_offset);
    /* The source goes on as a fork right after each seal: a sleep must not grow by every one. */
    if (elapsed < CLOSELY_NS)
        rebuild->missed += elapsed > 0 ? elapsed : 0;
    else {
        init->clock_offset[0] -= elapsed;
        init->clock_offset[1] -= asleep;
    }
    if (!init->clock_offset[0] && !init->clock_offset[1])
        return NULL;
    int failed = set_clocks_back(rebuild, init->clock_offset);
    if (!failed) {
        if (elapsed < CLOSELY_NS)
            return NULL;
        return buffer_printf(report, "note clocks go on from the seal, %.3f s ago (time namespace)\n", (double)elapsed / 1e9);
    }
    memset(init->clock_offset, 0, sizeof init->clock_offset);
    return buffer_printf(report, "note clocks have gone on for %.3f s since the seal: what waits for a point in time may be late (%s)\n",
                         (double)elapsed / 1e9, strerrordesc_np(failed));
}
