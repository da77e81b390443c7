/*
 * Files of /proc/PID that are held open, and namespaces. A file of a process that lives is opened by its holder itself, when every process and
 * thread is there; one of a process that is dead, through a helper that has its number for a moment, and is as dead after that. Namespaces are
 * those of pid 1: no process can have others.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/rebuild.h"
#include "fork/tracee.h"

#define ONCE (O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY)
#define DELETED " (deleted)"

/* ---- capture ---- */

bool procfile_is(const char *link) { return !strncmp(link, "/proc/", 6) && link[6] >= '0' && link[6] <= '9'; }

/* The mounts of a process are those of pid 1, whose own file of them is there early enough to be watched by an epoll. */
static bool shows_mounts(const char *link) {
    const char *name = strrchr(link, '/') + 1;
    return !strcmp(name, "mounts") || !strcmp(name, "mountinfo") || !strcmp(name, "mountstats");
}

struct bunshin_error *procfile_capture(struct capture *capture, const struct holder *holder, const struct stat *info,
                                       struct image_description *ret) {
    char path[4300], again[64];
    pid_t pid = atoi(holder->link + 6);
    struct stat named;
    snprintf(path, sizeof path, "%s", holder->link);
    size_t length = strlen(path);
    if (length > strlen(DELETED) && !strcmp(path + length - strlen(DELETED), DELETED))
        path[length - strlen(DELETED)] = '\0'; /* what a dead process had */
    int looked = ret->flags & O_NOFOLLOW ? lstat(path, &named) : stat(path, &named);
    bool same = looked == 0 && named.st_ino == info->st_ino, lives = pid == 1 || freeze_find(capture->frozen, pid);
    if (lives && same && pid != 1 && shows_mounts(path) && !(ret->flags & O_PATH)) {
        snprintf(again, sizeof again, "/proc/1%s", strrchr(path, '/'));
        ret->kind = KIND_FILE;
        return capture_text(capture, again, &ret->path);
    }
    if (pid == 1 && same)
        ret->kind = KIND_FILE;
    else {
        ret->kind = lives && same ? KIND_PROC : KIND_PROC_DEAD;
        /* A helper has one thread of its own, and no more descriptors than we have. */
        char task[32];
        snprintf(task, sizeof task, "/task/%d", pid);
        const char *other = strstr(path, "/task/");
        bool alike = (!other || !strncmp(other, task, strlen(task)) || !other[6]) && !strstr(path, "/fdinfo/") && !strstr(path, "/map_files/");
        if (pid == 1 || (ret->kind == KIND_PROC_DEAD && !alike))
            return capture_refuse(holder, "an open file of /proc of something that is gone, %.100s", path);
    }
    return capture_text(capture, path, &ret->path);
}

struct bunshin_error *namespace_capture(struct capture *capture, const struct holder *holder, const struct stat *info,
                                        struct image_description *ret) {
    static const char *const types[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char path[48];
        struct stat own;
        size_t length = strlen(types[i]);
        if (strncmp(holder->link, types[i], length) || holder->link[length] != ':')
            continue;
        snprintf(path, sizeof path, "/proc/self/ns/%s", types[i]);
        if (stat(path, &own) != 0 || own.st_ino != info->st_ino)
            return capture_refuse(holder, "a namespace that is not the workspace's, %.60s", holder->link);
        ret->kind = KIND_FILE;
        return capture_text(capture, path, &ret->path);
    }
    return capture_refuse(holder, "an object of an unknown kind, %.100s", holder->link);
}

/* ---- rebuild: before there are processes ---- */

static struct bunshin_error *open_of_dead(struct rebuild *rebuild, int32_t index, const char *path) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    pid_t pid = atoi(path + 6);
    struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
    pid_t helper = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (helper == 0)
        for (;;)
            pause();
    if (helper < 0)
        return bunshin_error_os("cannot have a process of pid %d for a moment", pid);
    int fd = open(path, (record->flags & ~ONCE) | O_CLOEXEC);
    struct bunshin_error *error = fd < 0 ? bunshin_error_os("cannot open %.200s", path) : NULL;
    kill(helper, SIGKILL);
    waitpid(helper, NULL, __WALL);
    return error ? error : rebuild_place(rebuild, index, fd);
}

struct bunshin_error *procfile_rebuild(struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    if (record->kind == KIND_PROC_DEAD)
        return open_of_dead(rebuild, index, (const char *)IMAGE_HEAP(rebuild->image, record->path));
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC); /* a place holder, that may be a working directory for a moment */
    return fd < 0 ? bunshin_error_os("cannot open /") : rebuild_place(rebuild, index, fd);
}

/* ---- rebuild: when all are there. Each opens its own, by system calls of its main thread ---- */

struct opener {
    struct tracee *leader;
    const struct image_process *process;
    uint64_t room; /* below its stack */
};

static struct bunshin_error *ask(const struct opener *opener, long number, uint64_t a, uint64_t b, uint64_t c, const char *path, int64_t *ret) {
    uint64_t arguments[6] = {a, b, c};
    TRY(tracee_syscall(opener->leader, opener->process->vdso_code, number, arguments, ret));
    if (*ret < 0)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, (int)-*ret, "cannot open %.200s in pid %d: %s", path, opener->process->pid,
                                 strerrordesc_np((int)-*ret));
    return NULL;
}

static struct bunshin_error *open_one(struct rebuild *rebuild, const struct opener *opener, const struct image_descriptor *descriptor,
                                      int earlier) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, descriptor->description);
    const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
    uint64_t close_on_exec = descriptor->close_on_exec ? O_CLOEXEC : 0;
    int64_t opened, done;
    if (earlier >= 0) /* the same one, by another number */
        return ask(opener, SYS_dup3, (uint64_t)earlier, (uint64_t)descriptor->fd, close_on_exec, path, &done);
    TRY(tracee_write(opener->leader->tid, opener->room, path, strlen(path) + 1));
    TRY(ask(opener, SYS_open, opener->room, (uint64_t)(record->flags & ~ONCE), 0, path, &opened));
    TRY(ask(opener, SYS_dup3, (uint64_t)opened, (uint64_t)descriptor->fd, close_on_exec, path, &done));
    TRY(ask(opener, SYS_close, (uint64_t)opened, 0, 0, path, &done));
    if (record->position > 0)
        TRY(ask(opener, SYS_lseek, (uint64_t)descriptor->fd, (uint64_t)record->position, SEEK_SET, path, &done));
    return NULL;
}

static struct bunshin_error *open_all(struct rebuild *rebuild, const struct image_process *process, struct tracee *leader) {
    struct opener opener = {.leader = leader, .process = process};
    struct bunshin_error *error = NULL;
    for (int32_t i = 0; !error && i < process->descriptor_count + 1; i++) {
        const struct image_descriptor *descriptor = IMAGE_DESCRIPTOR(rebuild->image, process->first_descriptor + i);
        bool directory = i == process->descriptor_count; /* at last, the one it is in */
        int32_t description = directory ? process->directory : descriptor->description;
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, description);
        if (record->kind != KIND_PROC)
            continue;
        if (!opener.room) {
            const struct rlimit *many = &rebuild->own_limits[RLIMIT_NOFILE];
            opener.room = (ARCH_REG_SP(leader->registers) - ARCH_RED_ZONE - 4400) & ~15ull;
            if (prlimit(process->pid, RLIMIT_NOFILE, many, NULL) != 0)
                return bunshin_error_os("cannot set a limit of pid %d", process->pid);
        }
        if (directory) {
            const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
            int64_t done;
            error = tracee_write(leader->tid, opener.room, path, strlen(path) + 1);
            if (!error)
                error = ask(&opener, SYS_chdir, opener.room, 0, 0, path, &done);
            continue;
        }
        int earlier = -1;
        for (int32_t j = 0; j < i && earlier < 0; j++)
            if (IMAGE_DESCRIPTOR(rebuild->image, process->first_descriptor + j)->description == description)
                earlier = IMAGE_DESCRIPTOR(rebuild->image, process->first_descriptor + j)->fd;
        error = open_one(rebuild, &opener, descriptor, earlier);
    }
    if (!opener.room)
        return error;
    struct rlimit limit = {process->limits[RLIMIT_NOFILE][0], process->limits[RLIMIT_NOFILE][1]};
    if (!error && prlimit(process->pid, RLIMIT_NOFILE, &limit, NULL) != 0)
        error = bunshin_error_os("cannot set a limit of pid %d", process->pid);
    return error ? error : tracee_write_registers(leader, &leader->registers);
}

struct bunshin_error *procfile_finish(struct rebuild *rebuild, struct tracee *tracees) {
    struct image_header *image = rebuild->image;
    bool any = false;
    for (size_t i = 0; !any && i < image->table[TABLE_DESCRIPTION].count; i++)
        any = IMAGE_DESCRIPTION(image, i)->kind == KIND_PROC;
    for (size_t i = 0; any && i < image->table[TABLE_PROCESS].count; i++) {
        const struct image_process *process = IMAGE_PROCESS(image, i);
        if (process->state != PROCESS_ZOMBIE && process->vdso && tracees[process->first_thread].state == TRACEE_STOPPED)
            TRY(open_all(rebuild, process, &tracees[process->first_thread]));
    }
    return NULL;
}
