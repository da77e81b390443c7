#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/pagemap.h"
#include "lib/internal.h"

/* Each probe does the thing itself; those that change their process run in a child. */

static bool in_child(bool (*probe)(void)) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(probe() ? 0 : 1);
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return false;
    return status == 0;
}

static bool probe_user_namespace(void) { return unshare(CLONE_NEWUSER) == 0; }

static bool probe_overlay(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    int context = (int)syscall(SYS_fsopen, "overlay", 1);
    return context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) == 0;
}

static bool probe_pagemap_scan(void) {
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || page == MAP_FAILED)
        return false;
    *page = 1;
    struct pagemap_region region;
    struct pagemap_scan scan = {.size = sizeof scan,
                                .start = (uint64_t)(uintptr_t)page,
                                .end = (uint64_t)(uintptr_t)page + 4096,
                                .vec = (uint64_t)(uintptr_t)&region,
                                .vec_len = 1,
                                .category_anyof_mask = PAGEMAP_PRESENT | PAGEMAP_SWAPPED,
                                .return_mask = PAGEMAP_PRESENT};
    return ioctl(fd, PAGEMAP_SCAN_IOCTL, &scan) == 1;
}

static bool probe_kcmp(void) { return syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, 0, 0) >= 0 || errno != ENOSYS; }

static bool probe_pidfd_getfd(void) {
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    return pidfd >= 0 && syscall(SYS_pidfd_getfd, pidfd, 0, 0) >= 0;
}

static bool probe_map_vdso(void) {
#ifdef PR_SET_MM
    unsigned size = 0;
    return prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) == 0 && size > 0;
#else
    return false;
#endif
}

static bool probe_overlay_one_by_one(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    int context = (int)syscall(SYS_fsopen, "overlay", 1);
    /* An overlayfs of the old interface takes every option, and looks at none before it is mounted. */
    return context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "no-such-option", "/", 0) != 0 &&
           syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "lowerdir+", "/", 0) == 0;
}

static bool probe_time_namespace(void) { return unshare(CLONE_NEWUSER | CLONE_NEWTIME) == 0; }

struct bunshin_error *bunshin_features(char **ret) {
    static const struct {
        const char *name;
        bool (*probe)(void);
    } probes[] = {
        {"user-namespaces", probe_user_namespace}, {"overlayfs-in-user-namespace", probe_overlay},
        {"overlayfs-lowerdir-one-by-one", probe_overlay_one_by_one}, {"pagemap-scan", probe_pagemap_scan},
        {"kcmp", probe_kcmp},                      {"pidfd-getfd", probe_pidfd_getfd},
        {"checkpoint-restore", probe_map_vdso},    {"time-namespaces", probe_time_namespace},
    };
    struct buffer text = {0};
    struct utsname name;
    uname(&name);
    struct bunshin_error *error = buffer_printf(&text, "kernel %s\narchitecture %s\n", name.release, name.machine);
    for (size_t i = 0; !error && i < sizeof probes / sizeof *probes; i++)
        error = buffer_printf(&text, "%s %s\n", probes[i].name, in_child(probes[i].probe) ? "yes" : "no");
    if (!error)
        error = buffer_append(&text, "", 1);
    if (error) {
        buffer_deinit(&text);
        return error;
    }
    *ret = (char *)text.data;
    return NULL;
}
