/*
 * Open file descriptions: found through every process's descriptors, each captured once however many descriptors show it.
 * Sharing is asked of the kernel (kcmp), not guessed; a cheap key keeps the number of questions small.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
    return hash;
}

struct bunshin_error *capture_refuse(const struct holder *holder, const char *format, ...) {
    char reason[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (holder->in_flight && strlen(reason) + 64 < sizeof reason)
        strcat(reason, ", on its way in this unix socket");
    if (!holder->process)
        return bunshin_error_unsupported(1, "bunshin-init", holder->fd, "%s", reason);
    return bunshin_error_unsupported(holder->process->pid, holder->process->stat.comm, holder->fd, "%s", reason);
}

struct bunshin_error *described_add(struct capture *capture, const struct described *described) {
    if ((capture->described_count & (capture->described_count - 1)) == 0) {
        size_t capacity = capture->described_count ? capture->described_count * 2 : 64;
        struct described *grown = realloc(capture->described, capacity * sizeof *grown);
        if (!grown)
            return bunshin_error_no_memory();
        capture->described = grown;
    }
    capture->described[capture->described_count++] = *described;
    return NULL;
}

static int32_t find_same(struct capture *capture, uint64_t key, pid_t pid, int fd) {
    for (size_t i = 0; i < capture->described_count; i++) {
        struct described *known = &capture->described[i];
        if (known->key == key && known->fd >= 0 && syscall(SYS_kcmp, known->pid, pid, KCMP_FILE, known->fd, fd) == 0)
            return known->description;
    }
    return IMAGE_NONE;
}

void described_close(struct capture *capture) {
    for (size_t i = 0; i < capture->described_count; i++)
        if (capture->described[i].copy >= 0)
            close(capture->described[i].copy);
    free(capture->described);
    capture->described = NULL;
    capture->described_count = 0;
}

struct described *described_find(struct capture *capture, int32_t description) {
    for (size_t i = 0; i < capture->described_count; i++)
        if (capture->described[i].description == description)
            return &capture->described[i];
    return NULL;
}

/* ---- locks: listed in fdinfo with the descriptor they were taken through ---- */

static struct bunshin_error *capture_locks(struct capture *capture, const struct holder *holder, int32_t process, int32_t description,
                                           bool first_seen) {
    for (const char *line = strstr(holder->info, "lock:"); line; line = strstr(line + 5, "lock:")) {
        char kind[16], advice[16], mode[16], end[32];
        int owner;
        long long start;
        unsigned major, minor;
        unsigned long inode;
        if (sscanf(line, "lock: %*d: %15s %15s %15s %d %x:%x:%lu %lld %31s", kind, advice, mode, &owner, &major, &minor, &inode, &start,
                   end) != 9)
            return capture_refuse(holder, "a lock that cannot be read: %.80s", line);
        struct image_lock lock = {.process = process,
                                  .fd = holder->fd,
                                  .description = description,
                                  .exclusive = !strcmp(mode, "WRITE"),
                                  .start = start,
                                  .length = strcmp(end, "EOF") ? atoll(end) - start + 1 : 0};
        if (!strcmp(kind, "POSIX"))
            lock.kind = LOCK_POSIX;
        else if (!strcmp(kind, "OFDLCK") || !strcmp(kind, "FLOCK")) {
            if (!first_seen)
                continue; /* of the description: taken once */
            lock.kind = !strcmp(kind, "FLOCK") ? LOCK_FLOCK : LOCK_OFD;
        } else if (!strcmp(kind, "LEASE") && !strcmp(advice, "ACTIVE")) {
            if (!first_seen)
                continue;
            lock.kind = LOCK_LEASE;
        } else
            return capture_refuse(holder, "a %s on a file", !strcmp(kind, "LEASE") ? "lease that is being broken" : kind);
        TRY(capture_add(capture, TABLE_LOCK, &lock, sizeof lock, NULL));
    }
    return NULL;
}

/* ---- one descriptor ---- */

static struct bunshin_error *describe(struct capture *capture, struct holder *holder, const struct stat *info, int32_t self,
                                      struct image_description *ret) {
    const char *link = holder->link;
    if (ret->flags & O_PATH && *link == '/' && strncmp(link, "/memfd:", 7))
        return file_capture(capture, holder, ret); /* nothing is open there */
    if (S_ISFIFO(info->st_mode))
        return pipe_capture(capture, holder, self, ret);
    if (S_ISSOCK(info->st_mode))
        return socket_capture(capture, holder, self, ret);
    if (!strncmp(link, "anon_inode:", 11) || !strncmp(link, "pidfd:", 6))
        return anonymous_capture(capture, holder, ret);
    if (mqueue_is(capture, info))
        return mqueue_capture(capture, holder, ret);
    if (!strncmp(link, "/memfd:", 7) && !shared_is(capture, info))
        return capture_refuse(holder, "a memfd of huge pages");
    if (!strncmp(link, "/secretmem", 10))
        return capture_refuse(holder, "secret memory (memfd_secret)");
    if (shared_is(capture, info))
        return shared_capture(capture, holder, info, ret);
    if (!strncmp(link, "/dev/pts/", 9) || !strcmp(link, "/dev/ptmx") || !strcmp(link, "/dev/tty"))
        if (S_ISCHR(info->st_mode))
            return pty_capture(capture, holder, ret);
    return file_capture(capture, holder, ret);
}

static struct bunshin_error *capture_new(struct capture *capture, struct holder *holder, uint64_t key, int32_t *ret) {
    struct stat info;
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at fd %d of pid %d", holder->fd, holder->process ? holder->process->pid : 1);
    struct image_description record = {
        .kind = KIND_FILE,
        .flags = fcntl(holder->copy, F_GETFL),
        .position = lseek(holder->copy, 0, SEEK_CUR),
        .object = IMAGE_NONE,
        .same_as = IMAGE_NONE,
        .holder = holder->process && !holder->in_flight ? holder->process->pid : 1,
        .holder_fd = holder->in_flight ? holder->copy : holder->fd,
    };
    if (record.flags < 0)
        return bunshin_error_os("cannot read the flags of fd %d of pid %d", holder->fd, record.holder);
    struct f_owner_ex owner = {0};
    if (!(record.flags & O_PATH) && fcntl(holder->copy, F_GETOWN_EX, &owner) == 0) {
        record.owner = owner.pid;
        record.owner_type = owner.type;
        record.owner_signal = fcntl(holder->copy, F_GETSIG);
    }
    int32_t self = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    struct described described = {.key = key,
                                  .pid = holder->process && !holder->in_flight ? holder->process->alive : 1,
                                  .fd = record.holder_fd,
                                  .copy = holder->copy,
                                  .description = self,
                                  .inode = info.st_ino,
                                  .device = info.st_dev};
    /* Its place is taken and known first: what is captured with it (a peer, a lock, a queue it lies in itself) may name it. */
    TRY(capture_add(capture, TABLE_DESCRIPTION, &record, sizeof record, ret));
    TRY(described_add(capture, &described));
    TRY(describe(capture, holder, &info, self, &record));
    *CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, self) = record;
    return NULL;
}

static struct bunshin_error *capture_one(struct capture *capture, struct frozen_process *frozen, int fd, struct buffer *info,
                                         struct image_process *process) {
    char path[64], link[4200];
    snprintf(path, sizeof path, "%d/fd/%d", frozen->alive, fd);
    ssize_t length = readlinkat(capture->init->proc, path, link, sizeof link - 1);
    if (length < 0 && errno == ENAMETOOLONG)
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, fd, "a file with a path of more than %d bytes", PATH_MAX);
    if (length < 0)
        return bunshin_error_os("cannot read fd %d of pid %d", fd, frozen->pid);
    link[length] = '\0';
    snprintf(path, sizeof path, "%d/fdinfo/%d", frozen->alive, fd);
    if (!procfs_read(capture->init->proc, path, info))
        return bunshin_error_os("cannot read the state of fd %d of pid %d", fd, frozen->pid);
    uint64_t flags = 0;
    procfs_field((char *)info->data, "flags", 8, &flags);
    uint64_t key = hash_text(0xcbf29ce484222325ull ^ (flags & ~(uint64_t)O_CLOEXEC), link);
    struct holder holder = {.process = frozen, .fd = fd, .copy = -1, .link = link, .info = (char *)info->data};
    int32_t description = find_same(capture, key, frozen->alive, fd);
    bool fresh = description == IMAGE_NONE;
    if (fresh) {
        holder.copy = (int)syscall(SYS_pidfd_getfd, frozen->pidfd, fd, 0);
        if (holder.copy < 0)
            return bunshin_error_os("cannot take a copy of fd %d of pid %d (%s)", fd, frozen->pid, link);
        struct bunshin_error *error = capture_new(capture, &holder, key, &description);
        if (error) {
            if (!described_find(capture, description))
                close(holder.copy);
            return error;
        }
    }
    if (strstr(holder.info, "lock:"))
        TRY(capture_locks(capture, &holder, CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process), description, fresh));
    struct image_descriptor record = {fd, description, (flags & O_CLOEXEC) != 0, 0};
    process->descriptor_count++;
    return capture_add(capture, TABLE_DESCRIPTOR, &record, sizeof record, NULL);
}

struct bunshin_error *capture_descriptors(struct capture *capture, struct frozen_process *frozen, struct image_process *process) {
    char path[32];
    int *fds = NULL;
    size_t count = 0;
    process->first_descriptor = CAPTURE_COUNT(capture, TABLE_DESCRIPTOR, struct image_descriptor);
    snprintf(path, sizeof path, "%d/fd", frozen->alive);
    if (!procfs_numbers(capture->init->proc, path, &fds, &count))
        return bunshin_error_os("cannot list the descriptors of pid %d", frozen->pid);
    struct buffer info = {0};
    struct bunshin_error *error = NULL;
    for (size_t i = 0; !error && i < count; i++)
        error = capture_one(capture, frozen, fds[i], &info, process);
    buffer_deinit(&info);
    free(fds);
    return error;
}

/* What pid 1 has open: its own, or a copy of what is on its way (then `carrier` says in whose socket). */
static struct bunshin_error *capture_ours(struct capture *capture, const struct holder *carrier, int fd, int32_t *ret) {
    char path[64], link[4200];
    struct buffer info = {0};
    struct bunshin_error *error = NULL;
    uint64_t flags = 0;
    snprintf(path, sizeof path, "self/fd/%d", fd);
    ssize_t length = readlinkat(capture->init->proc, path, link, sizeof link - 1);
    link[length < 0 ? 0 : length] = '\0';
    snprintf(path, sizeof path, "self/fdinfo/%d", fd);
    if (!procfs_read(capture->init->proc, path, &info)) {
        if (carrier)
            close(fd);
        return bunshin_error_os("cannot read the state of fd %d of pid 1", fd);
    }
    procfs_field((char *)info.data, "flags", 8, &flags);
    uint64_t key = hash_text(0xcbf29ce484222325ull ^ (flags & ~(uint64_t)O_CLOEXEC), link);
    *ret = find_same(capture, key, 1, fd);
    if (*ret != IMAGE_NONE) {
        if (carrier)
            close(fd);
    } else {
        struct holder holder = {.fd = fd, .copy = carrier ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3), .link = link, .info = (char *)info.data};
        if (carrier) {
            holder.process = carrier->process;
            holder.fd = carrier->fd;
            holder.in_flight = true;
        }
        error = capture_new(capture, &holder, key, ret);
        if (error && !described_find(capture, *ret))
            close(holder.copy);
        if (!error && carrier && strstr(holder.info, "lock:"))
            error = capture_locks(capture, &holder, IMAGE_NONE, *ret, true);
    }
    struct described *described = carrier && !error ? described_find(capture, *ret) : NULL;
    if (described)
        described->in_flight = true;
    buffer_deinit(&info);
    return error;
}

struct bunshin_error *capture_own(struct capture *capture, int fd, int32_t *ret) {
    *ret = IMAGE_NONE;
    return fd < 0 ? NULL : capture_ours(capture, NULL, fd, ret);
}

struct bunshin_error *capture_in_flight(struct capture *capture, const struct holder *carrier, int fd, int32_t *ret) {
    return capture_ours(capture, carrier, fd, ret);
}
