#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/confine.h"
#include "frozen/frozen.h"
#include "init/init.h"

int start_confine(uint64_t capabilities) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {(uint32_t)capabilities, (uint32_t)capabilities, 0},
        {(uint32_t)(capabilities >> 32), (uint32_t)(capabilities >> 32), 0},
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    struct sock_fprog filter = {
        .len = (unsigned short)confine_filter_length(),
        .filter = (struct sock_filter *)confine_filter(capabilities),
    };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0)
        return -1;
    return (int)syscall(SYS_capset, &header, data);
}

/* A child reports its failure through a pipe that exec closes: {step, errno}. */
struct failure {
    int step;
    int errnum;
};

static const char *const step_names[] = {"set up descriptors", "enter the directory", "give up privileges", "fix addresses", "execute"};

static void child(struct init *init, const struct start *start, int report) {
    struct failure failure = {0};
    int fds[3];
    for (int i = 0; i < 3; i++) /* out of the way of 0 to 2 first */
        fds[i] = fcntl(start->fd[i], F_DUPFD, 10);
    for (int i = 0; i < 3; i++)
        if (fds[i] < 0 || dup2(fds[i], i) != i)
            goto fail;
    failure.step = 1;
    bool missing = false;
    if (chdir(init->settings.cwd) != 0 && chdir("/") != 0) /* where relative paths start */
        goto fail;
    if (chdir(start->cwd) != 0) {
        if (start->cwd_required)
            goto fail;
        missing = true;
    }
    report = fcntl(report, F_DUPFD_CLOEXEC, 10);
    if (missing) {
        struct failure note = {-1, errno};
        if (write(report, &note, sizeof note) != sizeof note)
            goto fail;
    }
    if (start->new_session)
        setsid();
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i < 65; i++)
        signal(i, SIG_DFL);
    struct rlimit size = {init->settings.file_size_limit, init->settings.file_size_limit};
    if (size.rlim_max) {
        signal(SIGXFSZ, SIG_IGN); /* a write then fails with a reason, instead of a death without a word */
        if (setrlimit(RLIMIT_FSIZE, &size) != 0)
            goto fail;
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, 0);
    setpriority(PRIO_PROCESS, 0, 0);
    failure.step = 2;
    syscall(SYS_close_range, 3, ~0U, 1 << 2 /* CLOSE_RANGE_CLOEXEC */);
    if (start_confine(init->settings.capabilities) != 0)
        goto fail;
    failure.step = 3;
    /* Some programs take randomness from where their memory lies. */
    if (init->settings.frozen & FROZEN_RANDOM && personality(ADDR_NO_RANDOMIZE) < 0)
        goto fail;
    failure.step = 4;
    execvpe(start->argv[0], (char *const *)start->argv, (char *const *)start->environment);
fail:
    failure.errnum = errno;
    if (write(report, &failure, sizeof failure) < 0)
        _exit(126);
    _exit(127);
}

struct bunshin_error *start_process(struct init *init, const struct start *start, pid_t *ret, bool *ret_cwd_missing) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return bunshin_error_os("cannot start %s: pipe", start->argv[0]);
    /* execvpe searches our own PATH: make it the tool's. */
    for (const char *const *entry = start->environment; *entry; entry++)
        if (!strncmp(*entry, "PATH=", 5))
            setenv("PATH", *entry + 5, 1);
    pid_t pid = fork();
    if (pid == 0) {
        close(report[0]);
        child(init, start, report[1]);
    }
    close(report[1]);
    if (pid < 0) {
        struct bunshin_error *error = bunshin_error_os("cannot start %s: fork", start->argv[0]);
        close(report[0]);
        return error;
    }
    *ret_cwd_missing = false;
    struct failure failure;
    struct bunshin_error *error = NULL;
    while (read(report[0], &failure, sizeof failure) == sizeof failure) {
        if (failure.step < 0) {
            *ret_cwd_missing = true;
            continue;
        }
        waitpid(pid, NULL, 0);
        errno = failure.errnum;
        error = bunshin_error_os("cannot %s: %.300s", step_names[failure.step], failure.step == 1 ? start->cwd : start->argv[0]);
    }
    close(report[0]);
    *ret = pid;
    return error;
}
