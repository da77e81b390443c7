#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/records.h"
#include "init/init.h"
#include "keeper/keeper.h"

static struct bunshin_error *write_map(pid_t pid, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open %s", path);
    ssize_t put = write(fd, text, strlen(text));
    struct bunshin_error *error = put < 0 ? bunshin_error_os("cannot write %s", path) : NULL;
    close(fd);
    return error;
}

/* A map of our own namespace onto itself: every id that exists here exists inside, under the same number. */
static struct bunshin_error *identity_map(const char *name, struct buffer *ret) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/%s", name);
    FILE *file = fopen(path, "re");
    if (!file)
        return bunshin_error_os("cannot open %s", path);
    unsigned inside, outside, count;
    struct bunshin_error *error = NULL;
    while (!error && fscanf(file, "%u %u %u", &inside, &outside, &count) == 3)
        error = buffer_printf(ret, "%u %u %u\n", inside, inside, count);
    fclose(file);
    if (!error)
        error = buffer_append(ret, "", 1);
    return error;
}

static struct bunshin_error *map_ids(pid_t pid) {
    struct buffer text = {0};
    struct bunshin_error *error = identity_map("uid_map", &text);
    if (!error)
        error = write_map(pid, "uid_map", (char *)text.data);
    text.size = 0;
    if (!error)
        error = identity_map("gid_map", &text);
    if (!error)
        error = write_map(pid, "gid_map", (char *)text.data);
    buffer_deinit(&text);
    return error;
}

struct bunshin_error *spawn(const struct wire *request, const struct cgroup_set *groups, pid_t *ret) {
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) != 0)
        return bunshin_error_os("cannot start a workspace: pipe");
    struct clone_args arguments = {.flags = CLONE_NEWUSER | CLONE_NEWPID, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) {
        char byte;
        close(gate[1]);
        /* The map must be there before anything else is done: until then this process is nobody. */
        if (read(gate[0], &byte, 1) != 1)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        init_main(request, groups->memory_fd, false);
        _exit(1);
    }
    if (pid < 0) {
        struct bunshin_error *error = bunshin_error_os("cannot start a workspace: clone3 with new user and pid namespaces");
        close(gate[0]);
        close(gate[1]);
        return error;
    }
    close(gate[0]);
    struct bunshin_error *error = map_ids(pid);
    if (!error && !cgroup_add(groups, pid))
        error = bunshin_error_os("cannot start a workspace: cgroup.procs");
    if (!error && write(gate[1], "", 1) != 1)
        error = bunshin_error_os("cannot start a workspace: gate");
    close(gate[1]);
    if (error) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return error;
    }
    *ret = pid;
    return NULL;
}

/* ---- an ordinary user's own namespace ---- */

/* The name of a user in /etc/passwd; "" for none. The C library's own look-up needs shared libraries. */
static void user_name(uid_t uid, char *ret, size_t size) {
    FILE *file = fopen("/etc/passwd", "re");
    char line[512], name[64];
    unsigned number;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63[^:]:%*[^:]:%u:", name, &number) == 2 && number == uid) {
            snprintf(ret, size, "%s", name);
            break;
        }
    if (file)
        fclose(file);
}

/* The first range that /etc/subuid or /etc/subgid gives to this user; false for none. */
static bool sub_range(const char *path, uid_t uid, unsigned *ret_start, unsigned *ret_count) {
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[512], number[16], user[64] = "";
    user_name(uid, user, sizeof user);
    snprintf(number, sizeof number, "%u", uid);
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        char *start = strchr(line, ':');
        if (!start)
            continue;
        *start++ = '\0';
        if (strcmp(line, number) && (!*user || strcmp(line, user)))
            continue;
        found = sscanf(start, "%u:%u", ret_start, ret_count) == 2 && *ret_count > 0;
    }
    fclose(file);
    return found;
}

static bool run_mapper(const char *program, pid_t pid, unsigned id, unsigned start, unsigned count) {
    char target[16], own[16], first[16], length[16];
    snprintf(target, sizeof target, "%d", pid);
    snprintf(own, sizeof own, "%u", id);
    snprintf(first, sizeof first, "%u", start);
    snprintf(length, sizeof length, "%u", count);
    execlp(program, program, target, "0", own, "1", "1", first, length, (char *)NULL);
    return false;
}

struct bunshin_error *spawn_prepare(void) {
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (uid == 0)
        return NULL;
    unsigned uid_start = 0, uid_count = 0, gid_start = 0, gid_count = 0;
    bool range = sub_range("/etc/subuid", uid, &uid_start, &uid_count) && sub_range("/etc/subgid", uid, &gid_start, &gid_count);
    pid_t self = getpid();
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) != 0)
        return bunshin_error_os("cannot prepare user namespace: pipe");
    pid_t helper = range ? fork() : -1;
    if (helper == 0) { /* outside the new namespace, where the mapping programs have their rights */
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 1)
            _exit(1);
        pid_t first = fork();
        if (first == 0)
            _exit(run_mapper("newuidmap", self, uid, uid_start, uid_count) ? 0 : 1);
        int status = 1;
        waitpid(first, &status, 0);
        if (status == 0)
            run_mapper("newgidmap", self, gid, gid_start, gid_count);
        _exit(1);
    }
    close(gate[0]);
    if (unshare(CLONE_NEWUSER) != 0) {
        struct bunshin_error *error = bunshin_error_os("cannot make a user namespace (unprivileged user namespaces may be "
                                                       "switched off here; see `bunshin doctor`)");
        close(gate[1]);
        if (helper > 0)
            waitpid(helper, NULL, 0);
        return error;
    }
    bool mapped = false;
    if (helper > 0) {
        int status = 1;
        if (write(gate[1], "", 1) == 1 && waitpid(helper, &status, 0) == helper && status == 0)
            mapped = true;
    }
    close(gate[1]);
    if (mapped)
        return NULL;
    char text[64];
    TRY(write_map(self, "setgroups", "deny"));
    snprintf(text, sizeof text, "0 %u 1", uid);
    TRY(write_map(self, "uid_map", text));
    snprintf(text, sizeof text, "0 %u 1", gid);
    return write_map(self, "gid_map", text);
}
