/* The order of a rebuild: descriptions, then processes, then pid 1's own. The order of a seal is in seal.c. */
#define _GNU_SOURCE
#include "fork/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/clock.h"
#include "fork/rebuild.h"

struct fork_stores fork_stores;

/* ---- descriptors in their range ---- */

void rebuild_set_flags(int fd, int flags) {
    int settable = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME | O_ASYNC;
    int now = fcntl(fd, F_GETFL);
    if (now >= 0 && !(now & O_PATH) && (now & settable) != (flags & settable))
        (void)fcntl(fd, F_SETFL, (now & ~settable) | (flags & settable));
}

struct bunshin_error *rebuild_place(struct rebuild *rebuild, int32_t index, int fd) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    int target = rebuild_fd(rebuild, index);
    if (dup3(fd, target, O_CLOEXEC) < 0) {
        struct bunshin_error *error = bunshin_error_os("cannot place a descriptor");
        close(fd);
        return error;
    }
    close(fd);
    rebuild_set_flags(target, record->flags);
    if (record->position > 0 && (record->kind == KIND_FILE || record->kind == KIND_GHOST || record->kind == KIND_SHARED) &&
        lseek(target, record->position, SEEK_SET) < 0 && errno != ESPIPE && errno != EINVAL)
        return bunshin_error_os("cannot set a file's position");
    rebuild->made[index] = true;
    return NULL;
}

static struct bunshin_error *highest_own(struct init *init, int *ret) {
    int *fds = NULL;
    size_t count = 0;
    if (!procfs_numbers(init->proc, "self/fd", &fds, &count))
        return bunshin_error_os("cannot list descriptors");
    *ret = 2;
    for (size_t i = 0; i < count; i++)
        if (fds[i] > *ret)
            *ret = fds[i];
    free(fds);
    return NULL;
}

static struct bunshin_error *choose_numbers(struct rebuild *rebuild, int store_count) {
    struct image_header *image = rebuild->image;
    int highest = 2;
    TRY(highest_own(rebuild->init, &highest));
    for (size_t i = 0; i < image->table[TABLE_DESCRIPTOR].count; i++)
        if (IMAGE_DESCRIPTOR(image, i)->fd > highest)
            highest = IMAGE_DESCRIPTOR(image, i)->fd;
    rebuild->base = highest + 1;
    rebuild->store_base = rebuild->base;
    rebuild->description_base = rebuild->store_base + store_count + 1;
    return NULL;
}

/*
 * Takes every number of the range before anything is made: a new descriptor gets the lowest free number, and must never
 * get one that something else is to be placed at.
 */
static struct bunshin_error *take_numbers(struct rebuild *rebuild, int image_fd, const int *stores, int store_count) {
    int end = rebuild->description_base + (int)rebuild->image->table[TABLE_DESCRIPTION].count;
    rebuild->image_fd = rebuild->store_base + store_count;
    for (int fd = rebuild->base; fd < end; fd++) {
        int from = fd < rebuild->image_fd ? stores[fd - rebuild->store_base] : image_fd;
        if (dup3(from, fd, O_CLOEXEC) >= 0)
            continue;
        if (errno == EBADF)
            return bunshin_error_new(BUNSHIN_ERROR_FORK, EMFILE,
                                     "cannot hold %d descriptors at a time: the limit of open files does not allow it", end);
        return bunshin_error_os("cannot place descriptor %d", fd);
    }
    return NULL;
}

/* ---- descriptions ---- */

static bool is_path_only(const struct image_description *record) { return record->kind == KIND_FILE && record->flags & O_PATH; }

static struct bunshin_error *rebuild_descriptions(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int32_t count = (int32_t)image->table[TABLE_DESCRIPTION].count;
    TRY(mounts_rebuild(rebuild, false)); /* first: what lies there, or below /dev/shm, must be there to be opened */
    TRY(tmpfs_rebuild(rebuild));
    TRY(shared_rebuild_all(rebuild));
    TRY(mounts_rebuild(rebuild, true));
    TRY(ghost_rebuild_all(rebuild));
    /* Files opened for writing come first: that copies them up, and whoever reads then reads what is written. */
    for (int reads = 0; reads < 2; reads++)
        for (int32_t i = 0; i < count; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            if (record->kind == KIND_FILE && !is_path_only(record) && ((record->flags & O_ACCMODE) == O_RDONLY) == reads)
                TRY(file_rebuild(rebuild, i));
        }
    for (int32_t i = 0; i < count; i++) {
        int kind = IMAGE_DESCRIPTION(image, i)->kind;
        if (kind == KIND_EVENTFD || kind == KIND_TIMERFD || kind == KIND_SIGNALFD || kind == KIND_EPOLL || kind == KIND_PIDFD)
            TRY(anonymous_rebuild(rebuild, i));
        if (kind == KIND_INOTIFY)
            TRY(inotify_rebuild(rebuild, i));
        if (kind == KIND_PROC || kind == KIND_PROC_DEAD)
            TRY(procfile_rebuild(rebuild, i));
    }
    TRY(mqueue_rebuild_all(rebuild));
    TRY(pipe_rebuild_all(rebuild));
    TRY(pty_rebuild_all(rebuild));
    TRY(socket_rebuild_all(rebuild));
    /* What shows a FIFO, a socket or a terminal without opening it: these are there now. */
    for (int32_t i = 0; i < count; i++)
        if (is_path_only(IMAGE_DESCRIPTION(image, i)) && !file_is_later(rebuild, i))
            TRY(file_rebuild(rebuild, i));
    for (int32_t i = 0; i < count; i++)
        if (!rebuild->made[i] && !socket_is_later(rebuild, i) && !file_is_later(rebuild, i))
            return bunshin_error_new(BUNSHIN_ERROR_FORK, EINVAL, "an image holds a description of kind %d that nothing makes",
                                     IMAGE_DESCRIPTION(image, i)->kind);
    return NULL;
}

/* Locks that belong to descriptions; those of processes are taken by the restorer, leases by stubs. */
static struct bunshin_error *rebuild_locks(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    for (size_t i = 0; i < image->table[TABLE_LOCK].count; i++) {
        const struct image_lock *lock = IMAGE_LOCK(image, i);
        int fd = rebuild_fd(rebuild, lock->description);
        if (lock->kind == LOCK_FLOCK && flock(fd, (lock->exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0)
            return bunshin_error_os("cannot lock a file again");
        struct flock region = {
            .l_type = (short)(lock->exclusive ? F_WRLCK : F_RDLCK), .l_whence = SEEK_SET, .l_start = lock->start, .l_len = lock->length};
        if (lock->kind == LOCK_OFD && fcntl(fd, F_OFD_SETLK, &region) != 0)
            return bunshin_error_os("cannot lock a file again");
    }
    return NULL;
}

static void set_last_pid(struct rebuild *rebuild) {
    char text[16];
    int length = snprintf(text, sizeof text, "%d", rebuild->image->last_pid);
    /* So that the next process gets the pid that it would get in the source. */
    if (rebuild->init->settings.last_pid_fd >= 0 && write(rebuild->init->settings.last_pid_fd, text, (size_t)length) < 0)
        return;
}

static struct bunshin_error *keep_stores(const int *stores, int store_count) {
    fork_stores.fd = calloc((size_t)store_count + 1, sizeof *fork_stores.fd);
    if (!fork_stores.fd)
        return bunshin_error_no_memory();
    for (int i = 0; i < store_count; i++)
        if ((fork_stores.fd[fork_stores.count++] = fcntl(stores[i], F_DUPFD_CLOEXEC, 3)) < 0)
            return bunshin_error_os("cannot keep a page store");
    return NULL;
}

static double since(int64_t *mark) {
    int64_t now = init_now();
    double ms = (double)(now - *mark) / 1e6;
    *mark = now;
    return ms;
}

struct bunshin_error *rebuild_fault(const struct rebuild *rebuild, enum restorer_step step, const char *name) {
    if (rebuild->fault != (int)step)
        return NULL;
    return bunshin_error_new(BUNSHIN_ERROR_FORK, EIO, "cannot rebuild %s: a fault was asked for", name);
}

bool fork_begins_inside(int image_fd) {
    struct image_header header;
    return pread(image_fd, &header, sizeof header, 0) == sizeof header && header.begin_inside;
}

/* ---- the order ---- */

struct bunshin_error *fork_rebuild(struct init *init, int image_fd, const int *stores, int store_count, struct buffer *ret_report) {
    int64_t mark = init_now();
    struct stat info;
    struct rebuild rebuild = {.init = init};
    rebuild.fault = init->fault;
    rebuild.carrier = init->carrier;
    rebuild.report = ret_report;
    if (fstat(image_fd, &info) != 0)
        return bunshin_error_os("cannot read an image");
    rebuild.image = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, image_fd, 0);
    rebuild.control = mmap(NULL, ARCH_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rebuild.image == MAP_FAILED || rebuild.control == MAP_FAILED)
        return bunshin_error_os("cannot map an image");
    struct image_header *image = rebuild.image;
    if (image->magic != IMAGE_MAGIC || image->size > (uint64_t)info.st_size || (int)image->store_count != store_count)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EBADMSG, "an image is damaged");
    TRY(clock_rebuild(&rebuild, ret_report));
    rebuild.made = calloc(image->table[TABLE_DESCRIPTION].count + 1, sizeof *rebuild.made);
    if (!rebuild.made)
        return bunshin_error_no_memory();
    TRY(keep_stores(stores, store_count));
    TRY(choose_numbers(&rebuild, store_count));
    TRY(take_numbers(&rebuild, image_fd, stores, store_count));
    TRY(rebuild_fault(&rebuild, STEP_DESCRIPTIONS, "descriptions"));
    TRY(sysv_rebuild(&rebuild));
    TRY(rebuild_descriptions(&rebuild));
    TRY(rebuild_fault(&rebuild, STEP_LOCKS, "locks"));
    TRY(rebuild_locks(&rebuild));
    TRY(buffer_printf(ret_report, "descriptions %.3f\n", since(&mark)));
    TRY(tree_rebuild(&rebuild));
    pty_rebuild_done(&rebuild);
    TRY(buffer_printf(ret_report, "tree %.3f\n", since(&mark)));
    told_whom(&rebuild);
    TRY(shared_seal(&rebuild));
    TRY(rebuild_fault(&rebuild, STEP_OWN, "pid 1"));
    TRY(own_rebuild(&rebuild));
    TRY(tmpfs_finish(&rebuild)); /* nothing is made there any more: times stay as they are set */
    TRY(mounts_finish(&rebuild));
    TRY(inotify_watch_all(&rebuild));
    set_last_pid(&rebuild);
    TRY(rebuild_fault(&rebuild, STEP_FINISH, "the end"));
    TRY(finish_rebuild(&rebuild));
    TRY(buffer_printf(ret_report, "finish %.3f\n", since(&mark)));
    syscall(SYS_close_range, (unsigned)rebuild.base, (unsigned)(rebuild.description_base + (int)image->table[TABLE_DESCRIPTION].count), 0);
    munmap(rebuild.image, (size_t)info.st_size);
    munmap(rebuild.control, ARCH_PAGE);
    free(rebuild.made);
    return NULL;
}
