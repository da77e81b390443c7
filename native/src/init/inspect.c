/* Looking at the workspace from its pid 1: processes and memory, files by descriptor, limits by polling. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/procfs.h"
#include "digest/digest.h"
#include "init/init.h"

#define POLL_INTERVAL_NS 100000000ll

static void memory_of(struct init *init, int pid, uint64_t ret[3]) {
    char path[64];
    struct buffer text = {0};
    snprintf(path, sizeof path, "%d/smaps_rollup", pid);
    ret[0] = ret[1] = ret[2] = 0;
    if (procfs_read(init->proc, path, &text)) {
        uint64_t clean = 0, dirty = 0;
        procfs_field((char *)text.data, "Rss", 10, &ret[0]);
        procfs_field((char *)text.data, "Pss", 10, &ret[1]);
        procfs_field((char *)text.data, "Private_Clean", 10, &clean);
        procfs_field((char *)text.data, "Private_Dirty", 10, &dirty);
        ret[0] <<= 10;
        ret[1] <<= 10;
        ret[2] = (clean + dirty) << 10;
    }
    buffer_deinit(&text);
}

/* What the kernel keeps for a process beside its memory (stack, task, mappings, files, its part of the namespaces), about. */
#define KERNEL_BYTES (160ull << 10)

/* Without a walk through page tables: of the memory of a process what is its own alone, or of its children born by fork(). */
void inspect_holding(struct init *init, struct wire *request) {
    int reply = request->fd_count ? request->fd[0] : -1;
    int *pids = NULL;
    size_t count = 0;
    if (!procfs_numbers(init->proc, ".", &pids, &count)) {
        wire_answer(reply, bunshin_error_os("cannot list processes"));
        return;
    }
    struct buffer text = {0};
    uint64_t bytes = 0, ticks = 0;
    for (size_t i = 0; i < count; i++) {
        char name[32];
        struct process_stat stat;
        uint64_t anonymous = 0, tables = 0;
        snprintf(name, sizeof name, "%d", pids[i]);
        if (procfs_stat(init->proc, name, &stat))
            ticks += stat.ticks;
        snprintf(name, sizeof name, "%d/status", pids[i]);
        if (!procfs_read(init->proc, name, &text))
            continue;
        procfs_field((char *)text.data, "RssAnon", 10, &anonymous); /* zombies have none */
        procfs_field((char *)text.data, "VmPTE", 10, &tables);
        bytes += ((anonymous + tables) << 10) + KERNEL_BYTES;
    }
    buffer_deinit(&text);
    free(pids);
    struct wire answer = {.verb = WIRE_RESULT, .argument = {(int64_t)bytes, (int64_t)(ticks * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK)))}};
    bunshin_error_destroy(wire_send(reply, &answer));
}

void inspect_processes(struct init *init, struct wire *request) {
    int reply = request->fd_count ? request->fd[0] : -1;
    struct buffer text = {0};
    int *pids = NULL;
    size_t count = 0;
    struct bunshin_error *error = NULL;
    if (!procfs_numbers(init->proc, ".", &pids, &count))
        error = bunshin_error_os("cannot list processes");
    for (size_t i = 0; !error && i < count; i++) {
        char name[16];
        struct process_stat stat;
        uint64_t memory[3] = {0};
        snprintf(name, sizeof name, "%d", pids[i]);
        if (!procfs_stat(init->proc, name, &stat) || (pids[i] != 1 && (stat.state == 'Z' || stat.state == 'X') && request->argument[0]))
            continue;
        if (request->argument[0])
            memory_of(init, pids[i], memory);
        error = buffer_printf(&text, "%d %d %lld %c %llu %llu %llu %s\n", stat.pid, stat.ppid, (long long)stat.threads, stat.state,
                              (unsigned long long)memory[0], (unsigned long long)memory[1], (unsigned long long)memory[2],
                              stat.comm);
    }
    free(pids);
    if (error)
        wire_answer(reply, error);
    else {
        struct wire answer = {.verb = WIRE_RESULT, .payload = text.data, .payload_size = text.size};
        bunshin_error_destroy(wire_send(reply, &answer));
    }
    buffer_deinit(&text);
}

static void make_parents(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
}

void inspect_open(struct init *init, struct wire *request) {
    int reply = request->fd_count ? request->fd[0] : -1;
    char given[4097], path[8200];
    if (request->payload_size >= sizeof given) {
        wire_answer(reply, bunshin_error_new(BUNSHIN_ERROR_OS, ENAMETOOLONG, "cannot open a file: a path of %llu bytes is too long",
                                             (unsigned long long)request->payload_size));
        return;
    }
    snprintf(given, sizeof given, "%.*s", (int)request->payload_size, (const char *)request->payload);
    snprintf(path, sizeof path, "%s%s%s", *given == '/' ? "" : init->settings.cwd, *given == '/' ? "" : "/", given);
    int flags = (int)request->argument[0] & (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | O_EXCL);
    if (flags & O_CREAT) {
        processes_before_call(init); /* who watches the file runs */
        make_parents(path);
    }
    /* Never waits for a FIFO's other side; truncation only after the kind is known. */
    int fd = open(path, (flags & ~O_TRUNC) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, (mode_t)request->argument[1]);
    struct stat info;
    struct bunshin_error *error = NULL;
    if (fd < 0)
        error = bunshin_error_os("cannot open %.300s", given);
    else if (fstat(fd, &info) != 0)
        error = bunshin_error_os("cannot look at %.300s", given);
    else if (S_ISDIR(info.st_mode))
        error = bunshin_error_new(BUNSHIN_ERROR_OS, EISDIR, "cannot open %.300s: it is a directory", given);
    else if (!S_ISREG(info.st_mode))
        error = bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "cannot open %.300s: it is not a regular file", given);
    else if (flags & O_TRUNC && ftruncate(fd, 0) != 0)
        error = bunshin_error_os("cannot truncate %.300s", given);
    if (error)
        wire_answer(reply, error);
    else {
        (void)fcntl(fd, F_SETFL, flags & O_APPEND);
        struct wire answer = {.verb = WIRE_OK, .fd_count = 1, .fd = {fd}};
        bunshin_error_destroy(wire_send(reply, &answer));
    }
    if (fd >= 0)
        close(fd);
}

/* ---- limits where no cgroup can be made ---- */

/* Bytes that a directory tree takes on disk. Bounded in depth by recursion through openat. */
static uint64_t tree_size(int directory, int depth) {
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) {
        if (copy >= 0)
            close(copy);
        return 0;
    }
    uint64_t size = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        struct stat info;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            fstatat(copy, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        size += (uint64_t)info.st_blocks * 512;
        if (S_ISDIR(info.st_mode) && depth < 200) {
            int inner = openat(copy, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (inner >= 0) {
                size += tree_size(inner, depth + 1);
                close(inner);
            }
        }
    }
    closedir(stream);
    return size;
}

static void stop_calls(struct init *init, int reason, const char *notice) {
    struct call *next;
    for (struct call *call = init->calls; call; call = next) {
        next = call->next;
        call_expire(init, call, reason, notice);
    }
}

bool inspect_cgroup(const struct init *init, const char *v2, const char *v1, const char *field, uint64_t *ret) {
    char text[8192];
    if (init->memory_fd < 0)
        return false;
    int fd = openat(init->memory_fd, v2, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fd = openat(init->memory_fd, v1, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    const char *at = strstr(text, field);
    if (!at || !strncmp(text, "max", 3))
        return false;
    *ret = strtoull(at + strlen(field), NULL, 10);
    return true;
}

uint64_t inspect_memory_left(const struct init *init) {
    uint64_t limit, used, active = 0, inactive = 0;
    if (!inspect_cgroup(init, "memory.max", "memory.limit_in_bytes", "", &limit) ||
        !inspect_cgroup(init, "memory.current", "memory.usage_in_bytes", "", &used))
        return UINT64_MAX;
    /* Pages of files are given up before anybody is killed. */
    (void)inspect_cgroup(init, "memory.stat", "memory.stat", "\nactive_file ", &active);
    (void)inspect_cgroup(init, "memory.stat", "memory.stat", "inactive_file ", &inactive);
    used -= active + inactive < used ? active + inactive : used;
    return used < limit ? limit - used : 0;
}

void inspect_limits(struct init *init, int64_t now) {
    const struct settings *settings = &init->settings;
    if (!settings->memory_poll && !settings->pids_poll && !settings->disk_limit)
        return;
    bool running = false;
    for (struct call *call = init->calls; call; call = call->next)
        running |= call->state == CALL_RUNNING;
    if (!running || now < init->next_poll)
        return;
    init->next_poll = now + POLL_INTERVAL_NS;
    int *pids = NULL;
    size_t count = 0;
    if ((settings->memory_poll || settings->pids_poll) && procfs_numbers(init->proc, ".", &pids, &count)) {
        uint64_t resident = 0;
        for (size_t i = 0; settings->memory_poll && i < count; i++) {
            uint64_t memory[3];
            if (pids[i] != 1)
                memory_of(init, pids[i], memory), resident += memory[1];
        }
        free(pids);
        if (settings->memory_poll && resident > settings->memory_poll)
            stop_calls(init, BUNSHIN_OUT_OF_MEMORY, "the call was stopped: the workspace's memory limit was passed");
        if (settings->pids_poll && count > settings->pids_poll + 1) /* pid 1 is not counted */
            stop_calls(init, BUNSHIN_SIGNALED, "the call was stopped: the workspace's process limit was passed");
    }
    if (settings->disk_limit && settings->upper_fd >= 0) {
        int64_t began = init_now();
        int upper = openat(settings->upper_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        uint64_t size = upper < 0 ? 0 : tree_size(upper, 0);
        if (upper >= 0)
            close(upper);
        /* A large tree is not walked more often than one part in twenty of the time. */
        init->next_poll = now + POLL_INTERVAL_NS + 20 * (init_now() - began);
        if (size > settings->disk_limit)
            stop_calls(init, BUNSHIN_SIGNALED, "the call was stopped: no space left (the workspace's disk limit was passed)");
    }
}
