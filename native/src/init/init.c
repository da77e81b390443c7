#define _GNU_SOURCE
#include "init/init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "digest/digest.h"
#include "fork/fork.h"
#include "fork/tracee.h"

int64_t init_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct bunshin_error *init_watch(struct init *init, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(init->epoll, EPOLL_CTL_ADD, fd, &event) ? bunshin_error_os("cannot watch a descriptor") : NULL;
}

void init_reap(struct init *init) {
    for (;;) {
        int status;
        /* __WALL also takes children that were cloned with another exit signal. */
        pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
        if (pid <= 0)
            return;
        if (WIFEXITED(status) || WIFSIGNALED(status))
            call_child_exited(init, pid, status);
        else if (WIFSTOPPED(status))
            tracee_stopped_late(pid, status); /* it could not be stopped in time when a seal was given up */
    }
}

static void request_interrupt(struct init *init, struct wire *request) {
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)request->payload_size, (const char *)request->payload);
    struct session *session = &init->session[!strcmp(name, "python") ? CALL_PYTHON : CALL_SHELL];
    if (session->running)
        call_expire(init, session->running, BUNSHIN_TIMEOUT, "the call was interrupted");
    if (request->fd_count)
        wire_answer(request->fd[0], NULL);
}

static void handle(struct init *init, struct wire *request) {
    if (init->sealed && request->verb != WIRE_RELEASE) {
        if (request->fd_count)
            wire_answer(request->fd[0], bunshin_error_new(BUNSHIN_ERROR_BUSY, EBUSY, "the workspace is being sealed"));
        return;
    }
    switch (request->verb) {
    case WIRE_CALL:
        call_start(init, request);
        break;
    case WIRE_OUTPUT:
        call_send_output(init, request);
        break;
    case WIRE_INTERRUPT:
        request_interrupt(init, request);
        break;
    case WIRE_OPEN:
        inspect_open(init, request);
        break;
    case WIRE_PROCESSES:
        inspect_processes(init, request);
        break;
    case WIRE_HOLDING:
        inspect_holding(init, request);
        break;
    case WIRE_DIGEST:
        digest_answer(init, request);
        break;
    case WIRE_FREEZE:
        halt_answer(init, request);
        break;
    case WIRE_SEAL:
        fork_seal(init, request);
        break;
    case WIRE_RELEASE:
        fork_release(init);
        if (request->fd_count)
            wire_answer(request->fd[0], NULL);
        break;
    default:
        if (request->fd_count)
            wire_answer(request->fd[0], bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "unknown request %u", request->verb));
    }
}

static void dispatch(struct init *init, int fd, uint32_t events) {
    if (fd == init->control) {
        struct wire request;
        bool open;
        struct bunshin_error *error = wire_receive(fd, -1, &request, &open);
        if (error) {
            bunshin_error_destroy(error);
            return;
        }
        if (!open)
            _exit(0); /* the owner has closed or is gone: the kernel ends every process here with us */
        handle(init, &request);
        wire_deinit(&request);
        return;
    }
    if (fd == init->signals) {
        struct signalfd_siginfo info;
        while (read(fd, &info, sizeof info) > 0)
            ;
        if (!init->sealed)
            init_reap(init);
        return;
    }
    for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++)
        if (init->session[kind].terminal == fd) {
            session_terminal_readable(&init->session[kind]);
            if (events & EPOLLHUP)
                epoll_ctl(init->epoll, EPOLL_CTL_DEL, fd, NULL);
            return;
        }
    for (struct call *call = init->calls; call; call = call->next) {
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            if (call->stream[stream] == fd) {
                call_readable(init, call, (enum stream)stream);
                return;
            }
        if (call->reply == fd) { /* nobody waits any more */
            close(call->reply);
            call->reply = -1;
            call_expire(init, call, BUNSHIN_TIMEOUT, "the caller went away");
            return;
        }
    }
    epoll_ctl(init->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void loop(struct init *init) {
    for (;;) {
        int64_t now = init_now(), next = call_next_deadline(init);
        if (init->sealed)
            next = init->seal_deadline;
        else if (init->next_poll || init->settings.memory_poll || init->settings.pids_poll || init->settings.disk_limit)
            for (struct call *call = init->calls; call; call = call->next)
                if (call->state == CALL_RUNNING && now + 100000000 < next)
                    next = now + 100000000;
        int wait_ms = next == INT64_MAX ? -1 : next <= now ? 0 : (int)((next - now + 999999) / 1000000);
        struct epoll_event events[32];
        int count = epoll_wait(init->epoll, events, 32, wait_ms);
        for (int i = 0; i < count; i++)
            dispatch(init, events[i].data.fd, events[i].events);
        now = init_now();
        if (init->sealed) {
            if (now >= init->seal_deadline)
                fork_release(init);
            continue;
        }
        call_check_deadlines(init, now);
        inspect_limits(init, now);
    }
}

/* Descriptors of the keeper that this process inherited are not ours to hold. */
static void close_inherited(const int *kept, int count) {
    unsigned from = 0;
    int sorted[WIRE_FDS_MAX + 8];
    memcpy(sorted, kept, sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if (sorted[j] < sorted[i]) {
                int swap = sorted[i];
                sorted[i] = sorted[j];
                sorted[j] = swap;
            }
    for (int i = 0; i < count; i++) {
        if (sorted[i] < 0)
            continue;
        if ((unsigned)sorted[i] > from)
            syscall(SYS_close_range, from, (unsigned)sorted[i] - 1, 0);
        from = (unsigned)sorted[i] + 1;
    }
    syscall(SYS_close_range, from, ~0U, 0);
}

static struct bunshin_error *begin(struct init *init, const struct wire *request, struct buffer *ret_report) {
    prctl(PR_SET_NAME, "bunshin-init");
    int kept[WIRE_FDS_MAX + 8], count = 0;
    for (uint32_t i = 0; i < request->fd_count; i++)
        kept[count++] = request->fd[i];
    kept[count++] = init->memory_fd;
    close_inherited(kept, count);
    for (int i = 0; i < 3; i++) /* 0 to 2 stay taken, so that no descriptor of ours lands there */
        if (open("/dev/null", O_RDWR) != i)
            return bunshin_error_os("cannot open /dev/null");
    setsid();
    sigset_t signals;
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int64_t began = init_now();
    TRY(settings_apply(request->payload, request->payload_size, init->without, &init->settings));
    /* What pid 1 holds, tools never see; from here on an exec cannot regain anything either. */
    for (int capability = 0; capability < 64; capability++)
        if (!(init->settings.capabilities >> capability & 1))
            prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    init->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    init->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    init->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (init->proc < 0 || init->signals < 0 || init->epoll < 0)
        return bunshin_error_os("cannot set up pid 1");
    TRY(mounts_remember(init));
    TRY(init_watch(init, init->signals));
    TRY(init_watch(init, init->control));
    TRY(session_prepare(init));
    TRY(buffer_printf(ret_report, "setup %.3f\n", (double)(init_now() - began) / 1e6));
    if (request->fd_count > 2) {
        int stores = (int)request->fd_count - 3;
        if (request->argument[3] && stores > 0)
            init->carrier = request->fd[3 + --stores];
        TRY(fork_rebuild(init, request->fd[2], request->fd + 3, stores, ret_report));
    }
    return NULL;
}

/*
 * A process that is not dumpable can be looked at only by who has rights over the user namespace in which its memory
 * began, by exec. The processes of a fork descend from pid 1, and pid 1 from the keeper, which began outside: so pid 1
 * begins anew, inside, where it matters (it takes most of a millisecond). It hands itself the request.
 */
static void begin_inside(const struct wire *request, int memory_fd) {
    int pair[2];
    char number[2][16];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
        return;
    struct bunshin_error *error = wire_send(pair[1], request);
    close(pair[1]);
    snprintf(number[0], sizeof number[0], "%d", pair[0]);
    snprintf(number[1], sizeof number[1], "%d", memory_fd);
    (void)fcntl(memory_fd, F_SETFD, 0);
    char *const argv[] = {"bunshin-init", "inside", number[0], number[1], NULL};
    char *const environment[] = {NULL};
    if (!error)
        execve("/proc/self/exe", argv, environment);
    bunshin_error_destroy(error); /* without it, most forks work as well */
    close(pair[0]);
}

void init_main_inside(int socket, int memory_fd) {
    struct wire request;
    bool open = false;
    if (wire_receive(socket, -1, &request, &open) || !open)
        _exit(1);
    close(socket);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    init_main(&request, memory_fd, true);
    _exit(1);
}

void init_main(const struct wire *request, int memory_fd, bool inside) {
    static struct init init;
    if (!inside && request->fd_count > 2 && fork_begins_inside(request->fd[2]))
        begin_inside(request, memory_fd);
    init = (struct init){.carrier = -1, .control = request->fd_count > 1 ? request->fd[1] : -1, .memory_fd = memory_fd,
                         .fault = (int)request->argument[1], .without = (int)request->argument[2]};
    int reply = request->fd_count ? request->fd[0] : -1;
    struct buffer report = {0};
    struct bunshin_error *error = begin(&init, request, &report);
    if (error) {
        wire_answer(reply, error);
        _exit(1);
    }
    struct wire ready = {.verb = WIRE_RESULT, .payload = report.data, .payload_size = report.size};
    bunshin_error_destroy(wire_send(reply, &ready));
    buffer_deinit(&report);
    for (uint32_t i = 0; i < request->fd_count; i++)
        if (i != 1)
            close(request->fd[i]);
    loop(&init);
}
