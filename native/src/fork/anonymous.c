/* Kernel objects behind a descriptor alone: eventfd, timerfd, signalfd, epoll, pidfd. Others are refused by name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/meet.h"
#include "fork/rebuild.h"

#define TIMERFD_SET_TICKS _IOW('T', 0, __u64)

struct event_state {
    uint64_t count;
    int32_t semaphore, pad;
};

struct timer_state {
    int32_t clock, flags;
    uint64_t ticks;
    int64_t value[2], interval[2];
    int64_t due; /* of one that waits for a point of wall-clock time: when, ns; else 0 */
};

/* ---- capture ---- */

static struct bunshin_error *capture_eventfd(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    struct event_state state = {0};
    uint64_t semaphore = 0;
    procfs_field(holder->info, "eventfd-count", 16, &state.count);
    procfs_field(holder->info, "eventfd-semaphore", 10, &semaphore);
    state.semaphore = (int32_t)semaphore;
    ret->kind = KIND_EVENTFD;
    return capture_heap(capture, &state, sizeof state, &ret->data);
}

static struct bunshin_error *capture_timerfd(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    struct timer_state state = {0};
    /*
     * Expirations of a periodic timer are counted when somebody asks: ask, then read. A timer that is due at this moment
     * shows no time left and no tick yet, just as one that is not set: it gets a moment to fire.
     */
    struct itimerspec now;
    char path[48];
    struct buffer text = {0};
    long long value[4];
    unsigned long long ticks = 0;
    unsigned flags;
    snprintf(path, sizeof path, "%d/fdinfo/%d", holder->in_flight ? 1 : holder->process->alive, holder->in_flight ? holder->copy : holder->fd);
    for (int tries = 0; tries < 5; tries++) {
        (void)timerfd_gettime(holder->copy, &now);
        if (!procfs_read(capture->init->proc, path, &text))
            return bunshin_error_os("cannot read the state of a timerfd");
        const char *info = strstr((const char *)text.data, "clockid:");
        if (!info || sscanf(info, "clockid: %d ticks: %llu settime flags: 0%o it_value: (%lld, %lld) it_interval: (%lld, %lld)",
                            &state.clock, &ticks, &flags, &value[0], &value[1], &value[2], &value[3]) != 7) {
            buffer_deinit(&text);
            return capture_refuse(holder, "a timerfd whose state cannot be read");
        }
        if (ticks || now.it_value.tv_sec || now.it_value.tv_nsec)
            break;
        usleep(200);
    }
    buffer_deinit(&text);
    /* Periodic, and due again at once: as good as one nanosecond from now. */
    if (!now.it_value.tv_sec && !now.it_value.tv_nsec && ticks && (now.it_interval.tv_sec || now.it_interval.tv_nsec))
        now.it_value.tv_nsec = 1;
    if (flags & TFD_TIMER_ABSTIME && (state.clock == CLOCK_REALTIME || state.clock == CLOCK_REALTIME_ALARM) && (now.it_value.tv_sec || now.it_value.tv_nsec)) {
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        state.due = (wall.tv_sec + now.it_value.tv_sec) * 1000000000ll + wall.tv_nsec + now.it_value.tv_nsec;
    }
    state.ticks = ticks;
    state.flags = (int32_t)flags;
    state.value[0] = now.it_value.tv_sec;
    state.value[1] = now.it_value.tv_nsec;
    timer_left_add(state.value, 1, init_now() - capture->sealed_at);
    state.interval[0] = now.it_interval.tv_sec;
    state.interval[1] = now.it_interval.tv_nsec;
    ret->kind = KIND_TIMERFD;
    return capture_heap(capture, &state, sizeof state, &ret->data);
}

static struct bunshin_error *capture_signalfd(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    uint64_t mask = 0;
    if (!procfs_field(holder->info, "sigmask", 16, &mask))
        return capture_refuse(holder, "a signalfd whose state cannot be read");
    ret->kind = KIND_SIGNALFD;
    return capture_heap(capture, &mask, sizeof mask, &ret->data);
}

/* Reads what an epoll watches. `*ret_stale`: a descriptor that is not, in process `pid`, the one that was registered; or -1. */
static struct bunshin_error *read_watches(const struct holder *holder, pid_t pid, struct buffer *ret, int *ret_stale) {
    struct bunshin_error *error = NULL;
    *ret_stale = -1;
    for (const char *line = strstr(holder->info, "tfd:"); !error && line; line = strstr(line + 4, "tfd:")) {
        struct image_watch watch;
        unsigned events;
        unsigned long long data;
        unsigned long inode;
        if (sscanf(line, "tfd: %d events: %x data: %llx pos:%*d ino:%lx", &watch.fd, &events, &data, &inode) != 4)
            return capture_refuse(holder, "an epoll whose state cannot be read");
        struct {
            uint32_t efd, tfd, toff;
        } slot = {(uint32_t)(holder->in_flight ? holder->copy : holder->fd), (uint32_t)watch.fd, 0};
        pid_t has_epoll = holder->in_flight ? 1 : holder->process->alive;
        if (syscall(SYS_kcmp, pid, has_epoll, 7 /* KCMP_EPOLL_TFD */, watch.fd, &slot) != 0) {
            *ret_stale = watch.fd;
            break;
        }
        watch.events = events;
        watch.data = data;
        error = buffer_append(ret, &watch, sizeof watch);
    }
    return error;
}

static struct bunshin_error *capture_epoll(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    struct buffer watches = {0};
    int stale = -1;
    struct bunshin_error *error = NULL;
    if (!holder->in_flight)
        error = read_watches(holder, holder->process->alive, &watches, &stale);
    else /* filled, and filled again, by a process that has all of what it watches */
        for (size_t i = 0; !error && i < capture->frozen->process_count; i++) {
            if (capture->frozen->processes[i].zombie)
                continue;
            watches.size = 0;
            error = read_watches(holder, capture->frozen->processes[i].alive, &watches, &stale);
            ret->holder = capture->frozen->processes[i].pid;
            ret->holder_fd = -1;
            if (stale < 0)
                break;
        }
    if (!error && stale >= 0)
        error = capture_refuse(holder, "an epoll that watches fd %d, which %s closed since", stale,
                               holder->in_flight ? "its owner has" : "this process has");
    if (!error)
        error = capture_heap(capture, watches.data, watches.size, &ret->data);
    buffer_deinit(&watches);
    ret->kind = KIND_EPOLL;
    return error;
}

static struct bunshin_error *capture_pidfd(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    uint64_t pid = 0;
    procfs_field(holder->info, "Pid", 10, &pid);
    struct image_pidfd state = {.pid = (int32_t)pid, .thread = ret->flags & O_EXCL ? PIDFD_OF_MAIN_THREAD : PIDFD_OF_PROCESS};
    if (state.pid > 0 && state.pid != 1 && !freeze_find(capture->frozen, state.pid)) {
        state.thread = PIDFD_OF_OTHER_THREAD;
        size_t i = 0;
        while (i < capture->frozen->thread_count && capture->frozen->threads[i].tid != state.pid)
            i++;
        if (i == capture->frozen->thread_count)
            state.pid = 0;
    }
    if (state.pid == 0)
        return capture_refuse(holder, "a pidfd of a process outside");
    if (holder->in_flight && state.thread == PIDFD_OF_OTHER_THREAD)
        return capture_refuse(holder, "a pidfd of a thread"); /* which is born when all queues are full */
    ret->kind = KIND_PIDFD;
    return capture_heap(capture, &state, sizeof state, &ret->data);
}

struct bunshin_error *anonymous_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    const char *name = strncmp(holder->link, "anon_inode:", 11) ? holder->link : holder->link + 11;
    if (!holder->process)
        return capture_refuse(holder, "an object of pid 1 that cannot be shared, %.60s", name);
    if (!strcmp(name, "[eventfd]"))
        return capture_eventfd(capture, holder, ret);
    if (!strcmp(name, "[timerfd]"))
        return capture_timerfd(capture, holder, ret);
    if (!strcmp(name, "[signalfd]"))
        return capture_signalfd(capture, holder, ret);
    if (!strcmp(name, "[eventpoll]"))
        return capture_epoll(capture, holder, ret);
    if (!strcmp(name, "[pidfd]") || !strncmp(name, "pidfd:", 6))
        return capture_pidfd(capture, holder, ret);
    if (!strcmp(name, "[io_uring]"))
        return capture_refuse(holder, "an io_uring instance");
    if (!strcmp(name, "inotify") || !strcmp(name, "[inotify]"))
        return inotify_capture(capture, holder, ret);
    if (!strcmp(name, "[userfaultfd]"))
        return capture_refuse(holder, "a userfaultfd");
    return capture_refuse(holder, "a kernel object of kind %.60s", name);
}

/* ---- rebuild ---- */

/* When a timer on the wall clock is due. Of the times that have passed meanwhile a periodic one shows the last: no burst. */
static struct timespec due_at(const struct timer_state *state) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t now = wall.tv_sec * 1000000000ll + wall.tv_nsec, due = state->due, interval = state->interval[0] * 1000000000 + state->interval[1];
    if (interval && now > due)
        due += (now - due) / interval * interval;
    return (struct timespec){due / 1000000000, due % 1000000000};
}

static int make_timerfd(const struct timer_state *state, int64_t missed) {
    int fd = timerfd_create(state->clock, TFD_CLOEXEC);
    if (fd < 0)
        return -1;
    /* What fdinfo tells is the time left, also for a timer that was set to an absolute time. */
    int64_t left[2] = {state->value[0], state->value[1]};
    timer_left_add(left, 1, -missed);
    struct itimerspec setting = {{state->interval[0], state->interval[1]}, {left[0], left[1]}};
    if (state->due)
        setting.it_value = due_at(state);
    if ((setting.it_value.tv_sec || setting.it_value.tv_nsec) && timerfd_settime(fd, state->due ? state->flags : 0, &setting, NULL) != 0) {
        close(fd);
        return -1;
    }
    if (state->ticks) {
        /* Expirations that nobody has read yet. Where the kernel cannot set them, one that is due at once stands for them. */
        uint64_t ticks = state->ticks;
        if (ioctl(fd, TIMERFD_SET_TICKS, &ticks) != 0 && !setting.it_value.tv_sec && !setting.it_value.tv_nsec) {
            setting.it_value.tv_nsec = 1;
            (void)timerfd_settime(fd, 0, &setting, NULL);
        }
    }
    return fd;
}

/* A pidfd of somebody who was reaped: somebody is, for that. */
static int make_dead_pidfd(int32_t thread, int flags) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int fd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, flags | (thread ? O_EXCL : 0));
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return fd;
}

struct bunshin_error *anonymous_rebuild(struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const void *data = IMAGE_HEAP(rebuild->image, record->data);
    int fd = -1;
    switch (record->kind) {
    case KIND_EVENTFD: {
        const struct event_state *state = data;
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | (state->semaphore ? EFD_SEMAPHORE : 0));
        uint64_t count = state->count;
        if (fd >= 0 && count && write(fd, &count, sizeof count) != sizeof count)
            return bunshin_error_os("cannot set an eventfd to %llu", (unsigned long long)count);
        break;
    }
    case KIND_TIMERFD:
        fd = make_timerfd(data, rebuild->missed);
        break;
    case KIND_SIGNALFD: {
        sigset_t mask;
        sigemptyset(&mask);
        memcpy(&mask, data, sizeof(uint64_t));
        fd = signalfd(-1, &mask, SFD_CLOEXEC);
        break;
    }
    case KIND_EPOLL:
        fd = epoll_create1(EPOLL_CLOEXEC);
        rebuild->epolls_in_flight |= record->holder_fd < 0;
        break;
    case KIND_PIDFD:
        if (((const struct image_pidfd *)data)->pid < 0) {
            fd = make_dead_pidfd(((const struct image_pidfd *)data)->thread, record->flags & O_NONBLOCK);
            break;
        }
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* a place holder: its process is not born yet */
        break;
    default:
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EINVAL, "an image holds a description of unknown kind %d", record->kind);
    }
    if (fd < 0)
        return bunshin_error_os("cannot make a kernel object of kind %d again", record->kind);
    return rebuild_place(rebuild, index, fd);
}

static int fill_epoll(struct rebuild *rebuild, const struct image_description *record, int fd) {
    const struct image_watch *watch = (const void *)IMAGE_HEAP(rebuild->image, record->data);
    for (size_t i = 0; i < record->data.size / sizeof *watch; i++) {
        struct epoll_event event = {.events = watch[i].events, .data.u64 = watch[i].data};
        if (epoll_ctl(fd, EPOLL_CTL_ADD, watch[i].fd, &event) != 0)
            return errno;
    }
    return 0;
}

int anonymous_fill_epoll(struct rebuild *rebuild, const struct image_process *process) {
    int failed = 0;
    for (int32_t i = 0; !failed && i < process->descriptor_count; i++) {
        const struct image_descriptor *descriptor = IMAGE_DESCRIPTOR(rebuild->image, process->first_descriptor + i);
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, descriptor->description);
        if (record->kind == KIND_EPOLL && record->holder == process->pid && record->holder_fd == descriptor->fd)
            failed = fill_epoll(rebuild, record, descriptor->fd);
    }
    int32_t count = rebuild->epolls_in_flight ? (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count : 0;
    for (int32_t i = 0; !failed && i < count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        if (record->kind == KIND_EPOLL && record->holder == process->pid && record->holder_fd < 0)
            failed = fill_epoll(rebuild, record, rebuild_fd(rebuild, i));
    }
    return failed;
}

int anonymous_open_pidfds(struct rebuild *rebuild, const struct image_process *process) {
    for (int32_t i = 0; i < process->descriptor_count; i++) {
        const struct image_descriptor *descriptor = IMAGE_DESCRIPTOR(rebuild->image, process->first_descriptor + i);
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, descriptor->description);
        const struct image_pidfd *state = (const void *)IMAGE_HEAP(rebuild->image, record->data);
        if (record->kind != KIND_PIDFD || state->pid < 0 || state->thread == PIDFD_OF_OTHER_THREAD)
            continue; /* those of threads are opened by the restorer, when there are threads */
        meet_wait(rebuild, STAGE_BORN); /* else the process may not be there yet */
        int fd = (int)syscall(SYS_pidfd_open, state->pid, (record->flags & O_NONBLOCK) | (state->thread ? O_EXCL : 0));
        if (fd < 0)
            return errno;
        if (dup3(fd, descriptor->fd, descriptor->close_on_exec ? O_CLOEXEC : 0) < 0)
            return errno;
        close(fd);
    }
    return 0;
}
