#define _GNU_SOURCE
#include "digest/ticks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/pagemap.h"
#include "common/procfs.h"
#include "fork/capture.h"
#include "fork/fork.h"

#define PAGE 4096
#define WORDS (PAGE / 8)
#define LEARNED_MOST 4096 /* words; who changes more at a time works, and does not tick */
#define PAGES_MOST 16384 /* 64 MB of copies for one process; a larger one is not compared */

struct page {
    uint64_t address;
    uint8_t *copy; /* as of the last look; NULL: it was not the process's own then */
    uint64_t mask[WORDS / 64], once[WORDS / 64]; /* words that time changes; that it has changed once */
};

struct ticks {
    struct page *page; /* by address */
    size_t count;
    bool looked;
    struct hash rest; /* where its threads sleep, and what it has open */
};

struct ticks *ticks_create(void) { return calloc(1, sizeof(struct ticks)); }

void ticks_destroy(struct ticks *ticks) {
    for (size_t i = 0; ticks && i < ticks->count; i++)
        free(ticks->page[i].copy);
    free(ticks ? ticks->page : NULL);
    free(ticks);
}

bool ticks_has_looked(const struct ticks *ticks) { return ticks->looked; }

/* ---- what is there now ---- */

struct region { /* of /proc/PID/maps */
    uint64_t start, end, offset, inode;
    bool store, plain; /* from a page store; anonymous */
};

struct look {
    struct region *region;
    size_t region_count;
    uint64_t *address; /* of the process's own pages, in order */
    size_t count;
    uint8_t *content;
    struct hash rest;
    uint64_t resident; /* bytes */
    /* The main thread's stack pointer, and what of its stack lies below: nobody reads there before having written. What the
     * deepest call of the last tick has left there is no state. */
    uint64_t pointer, dead_start, dead_end;
};

#define RED_ZONE 128            /* bytes below the stack pointer that a function may use */
#define RESIDENT_LATE (1 << 19) /* bytes: it grows, and the kernel's counts of it are some pages late on each processor */

static void look_deinit(struct look *look) {
    free(look->region);
    free(look->address);
    free(look->content);
}

/* False where it has memory that others may write. */
static bool read_regions(struct init *init, pid_t pid, struct look *look) {
    char path[32];
    struct buffer text = {0};
    size_t room = 0;
    snprintf(path, sizeof path, "%d/maps", pid);
    bool ok = procfs_read(init->proc, path, &text);
    for (char *line = (char *)text.data; ok && line && *line;) {
        char *next = strchr(line, '\n');
        char flags[5] = "";
        int name = 0;
        struct region region = {0};
        if (next)
            *next++ = '\0';
        ok = sscanf(line, "%lx-%lx %4s %lx %*s %lu %n", &region.start, &region.end, flags, &region.offset, &region.inode, &name) >= 5;
        if (flags[3] == 's' && flags[1] == 'w')
            ok = false;
        const char *file = name ? line + name : "";
        region.store = !strncmp(file, "/memfd:bunshin-pages", 20);
        region.plain = !region.inode;
        if (!strncmp(file, "[stack]", 7) && look->pointer >= region.start && look->pointer < region.end) {
            look->dead_start = region.start;
            look->dead_end = look->pointer - RED_ZONE;
        }
        if (look->region_count == room) {
            room = room ? room * 2 : 128;
            struct region *grown = realloc(look->region, room * sizeof *grown);
            if (!grown) {
                ok = false;
                break;
            }
            look->region = grown;
        }
        look->region[look->region_count++] = region;
        line = next;
    }
    buffer_deinit(&text);
    return ok;
}

static bool scan(struct init *init, pid_t pid, struct look *look) {
    static struct pagemap_region found[1024];
    char path[32];
    snprintf(path, sizeof path, "%d/pagemap", pid);
    int pagemap = init->without & WITHOUT_PAGEMAP_SCAN ? -1 : openat(init->proc, path, O_RDONLY | O_CLOEXEC);
    struct pagemap_scan arguments = {.size = sizeof arguments,
                                     .end = ARCH_TASK_END,
                                     .vec = (uint64_t)(uintptr_t)found,
                                     .vec_len = sizeof found / sizeof *found,
                                     .category_inverted = PAGEMAP_FILE | PAGEMAP_ZERO,
                                     .category_mask = PAGEMAP_FILE | PAGEMAP_ZERO,
                                     .category_anyof_mask = PAGEMAP_PRESENT | PAGEMAP_SWAPPED,
                                     .return_mask = PAGEMAP_PRESENT};
    bool ok = pagemap >= 0;
    look->address = malloc(PAGES_MOST * sizeof *look->address);
    ok = ok && look->address;
    while (ok && arguments.start < arguments.end) {
        int count = ioctl(pagemap, PAGEMAP_SCAN_IOCTL, &arguments);
        ok = count >= 0;
        for (int i = 0; ok && i < count; i++)
            for (uint64_t at = found[i].start; ok && at < found[i].end; at += PAGE) {
                ok = look->count < PAGES_MOST;
                if (ok)
                    look->address[look->count++] = at;
            }
        uint64_t next = arguments.walk_end;
        if (count > 0 && found[count - 1].end > next)
            next = found[count - 1].end;
        if (next <= arguments.start)
            break;
        arguments.start = next;
    }
    if (pagemap >= 0)
        close(pagemap);
    return ok;
}

static bool read_resident(struct init *init, pid_t pid, struct look *look) {
    char path[32];
    struct buffer text = {0};
    snprintf(path, sizeof path, "%d/statm", pid);
    bool ok = procfs_read(init->proc, path, &text) && sscanf((char *)text.data, "%*u %lu", &look->resident) == 1;
    look->resident *= PAGE;
    buffer_deinit(&text);
    return ok;
}

static bool read_pages(pid_t pid, struct look *look) {
    struct iovec from[256];
    look->content = malloc(look->count * PAGE + 1);
    if (!look->content)
        return false;
    for (size_t done = 0; done < look->count;) {
        size_t pieces = 0, pages = 0;
        while (done + pages < look->count && pieces < sizeof from / sizeof *from && pages < 4096) {
            uint64_t address = look->address[done + pages];
            if (pieces && (uint64_t)(uintptr_t)from[pieces - 1].iov_base + from[pieces - 1].iov_len == address)
                from[pieces - 1].iov_len += PAGE;
            else
                from[pieces++] = (struct iovec){(void *)(uintptr_t)address, PAGE};
            pages++;
        }
        struct iovec to = {look->content + done * PAGE, pages * PAGE};
        if (process_vm_readv(pid, &to, 1, from, pieces, 0) != (ssize_t)(pages * PAGE))
            return false; /* a guard page, or it is going away */
        done += pages;
    }
    return true;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* False where a thread does not sleep. */
static bool read_rest(struct init *init, pid_t pid, struct hash *ret, uint64_t *ret_pointer) {
    char path[64], link[4200];
    int *numbers = NULL;
    size_t count = 0;
    struct buffer text = {0};
    struct hash_state state;
    hash_init(&state);
    snprintf(path, sizeof path, "%d/task", pid);
    bool ok = procfs_numbers(init->proc, path, &numbers, &count);
    qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t i = 0; ok && i < count; i++) {
        /* Number, six arguments, stack pointer, instruction pointer. Arguments may hold the time that is left, and a call
         * that goes on in a fork has another number (restart_syscall). */
        snprintf(path, sizeof path, "%d/task/%d/syscall", pid, numbers[i]);
        unsigned long stack, instruction;
        ok = procfs_read(init->proc, path, &text) &&
             sscanf((char *)text.data, "%*d %*s %*s %*s %*s %*s %*s %lx %lx", &stack, &instruction) == 2;
        if (numbers[i] == pid)
            *ret_pointer = stack;
        hash_number(&state, (uint64_t)numbers[i]);
        hash_number(&state, stack);
        hash_number(&state, instruction);
    }
    free(numbers);
    numbers = NULL;
    snprintf(path, sizeof path, "%d/fd", pid);
    ok = ok && procfs_numbers(init->proc, path, &numbers, &count);
    if (ok)
        qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t i = 0; ok && i < count; i++) {
        snprintf(path, sizeof path, "%d/fd/%d", pid, numbers[i]);
        ssize_t length = readlinkat(init->proc, path, link, sizeof link);
        hash_number(&state, (uint64_t)numbers[i]);
        hash_text(&state, link, length < 0 ? 0 : (size_t)length);
        if (length > 0 && *link == '/') { /* where it reads or writes next */
            snprintf(path, sizeof path, "%d/fdinfo/%d", pid, numbers[i]);
            if (procfs_read(init->proc, path, &text))
                hash_text(&state, text.data, strcspn((char *)text.data, "\n"));
        }
    }
    free(numbers);
    buffer_deinit(&text);
    *ret = hash_end(&state);
    return ok;
}

/* Nanoseconds that its threads have run. */
static uint64_t run_time(struct init *init, pid_t pid) {
    char path[64];
    int *numbers = NULL;
    size_t count = 0;
    uint64_t sum = 0;
    struct buffer text = {0};
    snprintf(path, sizeof path, "%d/task", pid);
    if (!procfs_numbers(init->proc, path, &numbers, &count))
        return 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%d/task/%d/schedstat", pid, numbers[i]);
        if (procfs_read(init->proc, path, &text))
            sum += strtoull((char *)text.data, NULL, 10);
    }
    free(numbers);
    buffer_deinit(&text);
    return sum;
}

#define TRIES 5
#define TRIES_BUSY 200 /* while others keep it from running */
#define TRY_AGAIN_US 1000
#define WORK_NS 5000000 /* who runs for longer than this works, and does not tick */

/* A look that came in the middle of a tick is taken anew: one at rest, and where it was at rest before (`rest`, or NULL). */
static bool look_at(struct init *init, pid_t pid, const struct hash *rest, struct look *ret) {
    uint64_t begin = 0;
    *ret = (struct look){0};
    for (int tries = 0, elsewhere = 0; tries < TRIES_BUSY && elsewhere < TRIES; tries++) {
        if (tries == 1)
            begin = run_time(init, pid);
        else if (tries > TRIES && run_time(init, pid) - begin > WORK_NS)
            break;
        if (tries)
            usleep(TRY_AGAIN_US);
        struct hash after;
        uint64_t pointer = 0;
        look_deinit(ret);
        *ret = (struct look){0};
        if (!read_rest(init, pid, &ret->rest, &ret->pointer))
            continue;
        if (rest && !hash_equal(rest, &ret->rest)) {
            elsewhere++;
            continue;
        }
        if (!read_resident(init, pid, ret) || !read_regions(init, pid, ret) || !scan(init, pid, ret) || !read_pages(pid, ret))
            return false;
        if (read_rest(init, pid, &after, &pointer) && hash_equal(&after, &ret->rest))
            return true;
    }
    return false;
}

/* ---- comparing ---- */

/* What a page showed before it became the process's own. False: we do not know. */
static bool content_below(const struct look *look, uint64_t address, uint8_t ret[PAGE]) {
    for (size_t i = 0; i < look->region_count; i++) {
        const struct region *region = &look->region[i];
        if (address < region->start || address >= region->end)
            continue;
        memset(ret, 0, PAGE);
        if (region->plain)
            return true;
        for (int s = 0; region->store && s < fork_stores.count; s++) {
            struct stat info;
            if (fstat(fork_stores.fd[s], &info) == 0 && info.st_ino == region->inode)
                return pread(fork_stores.fd[s], ret, PAGE, (off_t)(region->offset + (address - region->start))) >= 0;
        }
        return false;
    }
    return false;
}

/* The kernel notes in a thread's rseq area, aligned to 32 bytes, which processor it runs on: twice the same small number. */
static bool is_processor(const uint8_t *before, const uint8_t *now, size_t word) {
    static long processors;
    uint32_t was[2], is[2];
    if (word % 4 || memcmp(before + 8 * word + 8, now + 8 * word + 8, 8))
        return false;
    if (!processors)
        processors = sysconf(_SC_NPROCESSORS_CONF);
    memcpy(was, before + 8 * word, 8);
    memcpy(is, now + 8 * word, 8);
    return was[0] == was[1] && is[0] == is[1] && was[0] < processors && is[0] < processors;
}

/* How many words at the beginning of a page are dead. */
static size_t dead_words(const struct look *look, uint64_t address) {
    if (address < look->dead_start || address >= look->dead_end)
        return 0;
    return look->dead_end - address < PAGE ? (look->dead_end - address) / 8 : WORDS;
}

/* What a service that watches its own size has last read of it: a fork begins small and grows as it touches pages. */
static bool is_resident(const uint8_t *before, const uint8_t *now, size_t word, uint64_t resident) {
    uint64_t was, is;
    memcpy(&was, before + 8 * word, 8);
    memcpy(&is, now + 8 * word, 8);
    return was && is && was % PAGE == 0 && is % PAGE == 0 && (is > resident ? is - resident : resident - is) <= RESIDENT_LATE;
}

/* Whether `now`, of a look, differs from `before` only where the mask says. *ret_other: words that it does not. `learn`: a
 * word that changes a second time is of the mask from now on. What a call set off late changes once. */
static bool compare(const struct look *look, const uint8_t *before, const uint8_t *now, struct page *page, bool learn,
                    size_t *ret_other) {
    bool only = true;
    if (memcmp(before, now, PAGE) == 0)
        return true;
    for (size_t word = dead_words(look, page->address); word < WORDS; word++) {
        uint64_t bit = 1ull << word % 64;
        if (memcmp(before + 8 * word, now + 8 * word, 8) == 0 || page->mask[word / 64] & bit ||
            is_processor(before, now, word) || is_resident(before, now, word, look->resident))
            continue;
        only = false;
        ++*ret_other;
        if (learn) {
            page->mask[word / 64] |= page->once[word / 64] & bit;
            page->once[word / 64] |= bit;
        }
    }
    return only;
}

static const uint8_t *content_before(const struct ticks *ticks, const struct look *look, uint64_t address,
                                     size_t *cursor, uint8_t below[PAGE]) {
    while (*cursor < ticks->count && ticks->page[*cursor].address < address)
        ++*cursor;
    if (*cursor < ticks->count && ticks->page[*cursor].address == address && ticks->page[*cursor].copy)
        return ticks->page[*cursor].copy;
    return content_below(look, address, below) ? below : NULL;
}

static bool works(const struct ticks *ticks, const struct look *look) {
    size_t cursor = 0, changed = 0;
    uint8_t below[PAGE];
    for (size_t i = 0; i < look->count && changed <= LEARNED_MOST; i++) {
        const uint8_t *before = content_before(ticks, look, look->address[i], &cursor, below);
        struct page nothing = {.address = look->address[i]};
        if (before)
            (void)compare(look, before, look->content + i * PAGE, &nothing, false, &changed);
    }
    return changed > LEARNED_MOST;
}

/* Takes over the contents of a look. False: something else changed than the masks say, or it cannot be known. */
static bool meet(struct ticks *ticks, const struct look *look, bool learn) {
    struct page *merged = calloc(look->count + ticks->count + 1, sizeof *merged);
    bool only = merged != NULL, first = !ticks->looked;
    size_t count = 0, old = 0, other = 0;
    for (size_t i = 0; merged && i < look->count; i++) {
        uint64_t address = look->address[i];
        const uint8_t *now = look->content + i * PAGE;
        uint8_t below[PAGE];
        for (; old < ticks->count && ticks->page[old].address < address; old++) {
            only &= first || !ticks->page[old].copy; /* it was given back */
            free(ticks->page[old].copy);
            ticks->page[old].copy = NULL;
            merged[count++] = ticks->page[old];
        }
        struct page *page = &merged[count++];
        *page = old < ticks->count && ticks->page[old].address == address ? ticks->page[old++] : (struct page){.address = address};
        if (!first) {
            bool known = page->copy || content_below(look, address, below);
            only &= known && compare(look, page->copy ? page->copy : below, now, page, learn, &other);
        }
        if (!page->copy && !(page->copy = malloc(PAGE)))
            only = false;
        else
            memcpy(page->copy, now, PAGE);
    }
    for (; merged && old < ticks->count; old++) {
        only &= first || !ticks->page[old].copy;
        free(ticks->page[old].copy);
        ticks->page[old].copy = NULL;
        merged[count++] = ticks->page[old];
    }
    if (merged) {
        free(ticks->page);
        ticks->page = merged;
        ticks->count = count;
    }
    only &= first || hash_equal(&ticks->rest, &look->rest);
    ticks->rest = look->rest;
    ticks->looked = merged != NULL;
    return only;
}

size_t ticks_learned(const struct ticks *ticks) {
    size_t learned = 0;
    for (size_t i = 0; i < ticks->count; i++)
        for (size_t word = 0; word < WORDS / 64; word++)
            learned += (size_t)__builtin_popcountll(ticks->page[i].mask[word]) + (size_t)__builtin_popcountll(ticks->page[i].once[word]);
    return learned;
}

void ticks_learn(struct init *init, pid_t pid, struct ticks *ticks, bool pause) {
    struct look look;
    bool looked = look_at(init, pid, ticks->looked ? &ticks->rest : NULL, &look);
    if (!looked && ticks->looked) {
        look_deinit(&look);
        looked = look_at(init, pid, NULL, &look);
    }
    if (looked)
        (void)meet(ticks, &look, pause && ticks->looked && !works(ticks, &look));
    else
        ticks->looked = false;
    look_deinit(&look);
}

bool ticks_only(struct init *init, pid_t pid, struct ticks *ticks) {
    struct look look;
    bool only = look_at(init, pid, &ticks->rest, &look) && meet(ticks, &look, false);
    look_deinit(&look);
    if (!only) /* to compare with after the next call */
        ticks_learn(init, pid, ticks, false);
    return only;
}

/* ---- into a fork: what was learned, not what was looked at ---- */

struct saved {
    uint64_t count;
};

struct saved_page {
    uint64_t address;
    uint64_t mask[WORDS / 64], once[WORDS / 64];
};

static bool has_mask(const struct page *page) {
    for (size_t i = 0; i < WORDS / 64; i++)
        if (page->once[i])
            return true;
    return false;
}

struct bunshin_error *ticks_save(const struct ticks *ticks, struct buffer *ret) {
    struct saved saved = {0};
    for (size_t i = 0; i < ticks->count; i++)
        saved.count += has_mask(&ticks->page[i]);
    TRY(buffer_append(ret, &saved, sizeof saved));
    for (size_t i = 0; i < ticks->count; i++)
        if (has_mask(&ticks->page[i])) {
            struct saved_page page = {.address = ticks->page[i].address};
            memcpy(page.mask, ticks->page[i].mask, sizeof page.mask);
            memcpy(page.once, ticks->page[i].once, sizeof page.once);
            TRY(buffer_append(ret, &page, sizeof page));
        }
    return NULL;
}

struct bunshin_error *ticks_restore(const uint8_t **data, size_t *size, struct ticks **ret) {
    struct saved saved;
    struct ticks *ticks = ticks_create();
    if (!ticks)
        return bunshin_error_no_memory();
    *ret = ticks;
    if (*size < sizeof saved)
        return NULL;
    memcpy(&saved, *data, sizeof saved);
    *data += sizeof saved;
    *size -= sizeof saved;
    if (saved.count > *size / sizeof(struct saved_page))
        return NULL;
    if (!(ticks->page = calloc(saved.count + 1, sizeof *ticks->page)))
        return bunshin_error_no_memory();
    for (; ticks->count < saved.count; ticks->count++) {
        struct saved_page page;
        memcpy(&page, *data, sizeof page);
        ticks->page[ticks->count].address = page.address;
        memcpy(ticks->page[ticks->count].mask, page.mask, sizeof page.mask);
        memcpy(ticks->page[ticks->count].once, page.once, sizeof page.once);
        *data += sizeof page;
        *size -= sizeof page;
    }
    return NULL;
}
