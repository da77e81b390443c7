/*
 * What a snapshot holds in memory, and where that goes while nobody needs it. A snapshot lives in memory files (its image, page
 * stores). Those that are its alone can be moved out to unnamed files on a disk, and are moved back before it is forked: forks
 * map memory files, which a later seal knows again, and the pages of which no disk has to be read for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/buffer.h"
#include "lib/internal.h"

static int *file_of(struct bunshin_snapshot *snapshot, int number) { return number ? &snapshot->store[number - 1] : &snapshot->image; }

struct bunshin_error *bunshin_snapshot_holding(const struct bunshin_snapshot *snapshot, char **ret) {
    struct buffer text = {0};
    struct bunshin_error *error = NULL;
    for (int i = 0; !error && i <= snapshot->store_count; i++) {
        struct stat info = {0};
        if (!(snapshot->spilled & 1ull << i) && fstat(i ? snapshot->store[i - 1] : snapshot->image, &info) != 0)
            error = bunshin_error_os("cannot look at a memory file");
        else
            error = buffer_printf(&text, "%" PRIu64 " %" PRIu64 "\n", (uint64_t)info.st_ino, (uint64_t)info.st_blocks * 512);
    }
    if (!error)
        error = buffer_append(&text, "", 1);
    if (error) {
        buffer_deinit(&text);
        return error;
    }
    *ret = (char *)text.data;
    return NULL;
}

/* All of it, holes as holes: in a page store they stand for zeros. */
static struct bunshin_error *copy(int from, int to) {
    struct stat info;
    if (fstat(from, &info) != 0 || ftruncate(to, info.st_size) != 0)
        return bunshin_error_os("cannot copy a memory file");
    for (off_t at = 0, end; (at = lseek(from, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(from, at, SEEK_HOLE);
        if (end < 0 || lseek(to, at, SEEK_SET) < 0)
            return bunshin_error_os("cannot copy a memory file");
        for (off_t next = at; next < end;) {
            ssize_t sent = sendfile(to, from, &next, (size_t)(end - next));
            if (sent < 0 && errno != EINTR)
                return bunshin_error_os("cannot copy a memory file of %lld bytes", (long long)info.st_size);
            if (sent == 0)
                return bunshin_error_new(BUNSHIN_ERROR_OS, EIO, "cannot copy a memory file: it ended early");
        }
    }
    return errno == ENXIO ? NULL : bunshin_error_os("cannot copy a memory file"); /* no data beyond: the end */
}

static struct bunshin_error *move(int *file, int target) {
    if (target < 0)
        return bunshin_error_os("cannot make a file");
    struct bunshin_error *error = copy(*file, target);
    if (error) {
        close(target);
        return error;
    }
    close(*file);
    *file = target;
    return NULL;
}

struct bunshin_error *bunshin_snapshot_spill(struct bunshin_snapshot *snapshot, const char *directory, uint64_t which) {
    struct statfs where;
    if (statfs(directory, &where) != 0)
        return bunshin_error_os("cannot spill a snapshot into %s", directory);
    if (where.f_type == TMPFS_MAGIC || where.f_type == RAMFS_MAGIC)
        return bunshin_error_new(BUNSHIN_ERROR_OS, EOPNOTSUPP, "cannot spill a snapshot into %s: it lies in memory, too", directory);
    for (int i = 0; i <= snapshot->store_count && i < 64; i++) {
        if (!(which & ~snapshot->spilled & 1ull << i))
            continue;
        TRY(move(file_of(snapshot, i), open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)));
        snapshot->spilled |= 1ull << i;
    }
    return NULL;
}

struct bunshin_error *bunshin_snapshot_recall(struct bunshin_snapshot *snapshot) {
    for (int i = 0; i <= snapshot->store_count && i < 64; i++) {
        if (!(snapshot->spilled & 1ull << i))
            continue;
        int *file = file_of(snapshot, i);
        TRY(move(file, memfd_create(i ? "bunshin-pages" : "bunshin-image", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
        (void)fcntl(*file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        snapshot->spilled &= ~(1ull << i);
    }
    return NULL;
}
