/*
 * Connections that a seal accepted to look into them, put back where it was given up: whoever had connected does so again,
 * in order, with a new socket, what was written is written again, and that socket takes the place of the client's in every
 * descriptor and every epoll that had it. All of this happens while everything is frozen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arch/x86_64.h"
#include "fork/socket.h"
#include "fork/socket_unix.h"
#include "fork/unaccepted.h"

static struct unaccepted *list; /* of the seal at hand; pid 1 has one at a time */
static size_t count;

size_t unaccepted_count(void) { return count; }
struct unaccepted *unaccepted_at(size_t number) { return &list[number]; }

struct bunshin_error *unaccepted_add(int listener, int client, struct unaccepted **ret) {
    struct unaccepted *grown = realloc(list, (count + 1) * sizeof *grown);
    if (!grown)
        return bunshin_error_no_memory();
    list = grown;
    *ret = &list[count++];
    **ret = (struct unaccepted){.listener = fcntl(listener, F_DUPFD_CLOEXEC, 3), .accepted = -1, .client = -1, .again = -1};
    if (client >= 0)
        (*ret)->client = fcntl(client, F_DUPFD_CLOEXEC, 3);
    return (*ret)->listener < 0 || (client >= 0 && (*ret)->client < 0) ? bunshin_error_os("cannot copy a unix socket") : NULL;
}

struct bunshin_error *unaccepted_accept(struct unaccepted *taken) {
    int flags = fcntl(taken->listener, F_GETFL);
    (void)fcntl(taken->listener, F_SETFL, flags | O_NONBLOCK);
    taken->accepted = accept4(taken->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct bunshin_error *error = taken->accepted < 0 ? bunshin_error_os("cannot look at a connection that is not accepted yet") : NULL;
    (void)fcntl(taken->listener, F_SETFL, flags);
    return error;
}

/* ---- calls made by a frozen process ---- */

struct guest {
    struct tracee *thread;
    uint64_t vdso, area;
    int pidfd;
};

static int64_t call(struct guest *guest, long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    uint64_t arguments[6] = {a, b, c, d, e, f};
    int64_t result = -ECHILD;
    struct bunshin_error *error = tracee_syscall(guest->thread, guest->vdso, number, arguments, &result);
    if (error)
        result = -ECHILD;
    bunshin_error_destroy(error);
    return result;
}

static bool write_there(struct guest *guest, uint64_t at, const void *data, size_t size) {
    struct bunshin_error *error = tracee_write(guest->thread->tid, guest->area + at, data, size);
    bool done = !error;
    bunshin_error_destroy(error);
    return done;
}

static bool enter(struct frozen *frozen, pid_t pid, uint64_t vdso, struct guest *ret) {
    struct frozen_process *process = frozen ? freeze_find(frozen, pid) : NULL;
    if (!process || process->zombie || !vdso)
        return false;
    *ret = (struct guest){.thread = &frozen->threads[process->first_thread], .vdso = vdso, .pidfd = process->pidfd};
    ret->thread->changed = true;
    struct bunshin_error *error = tracee_set_mask(ret->thread, ~0ull);
    bool masked = !error;
    bunshin_error_destroy(error);
    int64_t area = -1;
    if (masked)
        area = call(ret, SYS_mmap, 0, 2 * ARCH_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0);
    ret->area = (uint64_t)area;
    return !(area < 0 && area > -4096);
}

static void leave(struct guest *guest) {
    (void)call(guest, SYS_munmap, guest->area, 2 * ARCH_PAGE, 0, 0, 0, 0);
    bunshin_error_destroy(tracee_set_mask(guest->thread, guest->thread->mask));
}

/* ---- connecting again ---- */

static int connect_there(struct guest *guest, int type, const struct sockaddr_un *address, socklen_t length) {
    int64_t fd = call(guest, SYS_socket, AF_UNIX, (uint64_t)(type | SOCK_CLOEXEC | SOCK_NONBLOCK), 0, 0, 0, 0);
    if (fd < 0)
        return -1;
    int ours = -1;
    if (write_there(guest, 0, address, length) && call(guest, SYS_connect, (uint64_t)fd, guest->area, length, 0, 0, 0) == 0)
        ours = (int)syscall(SYS_pidfd_getfd, guest->pidfd, (int)fd, 0);
    (void)call(guest, SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
    return ours;
}

/* Where the listener is now. */
static socklen_t reach(int listener, struct sockaddr_un *ret) {
    socklen_t length = sizeof *ret;
    *ret = (struct sockaddr_un){0};
    (void)getsockname(listener, (struct sockaddr *)ret, &length);
    int file = ret->sun_path[0] ? unix_name_file(listener) : -1;
    if (file < 0)
        return length < sizeof *ret ? length : sizeof *ret;
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    memset(ret->sun_path, 0, sizeof ret->sun_path);
    (void)!readlink(link, ret->sun_path, sizeof ret->sun_path - 1);
    close(file);
    return sizeof *ret;
}

static uint64_t vdso_of(int proc, pid_t pid) {
    char path[32];
    struct buffer maps = {0};
    uint64_t vdso = 0;
    snprintf(path, sizeof path, "%d/maps", pid);
    char *end = procfs_read(proc, path, &maps) ? strstr((char *)maps.data, "[vdso]") : NULL;
    while (end && end > (char *)maps.data && end[-1] != '\n')
        end--;
    if (end)
        vdso = strtoull(end, NULL, 16);
    buffer_deinit(&maps);
    return vdso;
}

/* By the one who did so before: the kernel notes who it is. */
static void connect_again(struct unaccepted *taken, struct frozen *frozen, int proc) {
    struct sockaddr_un address;
    socklen_t length = reach(taken->listener, &address), size = sizeof(struct ucred);
    int type = socket_int_option(taken->listener, SOL_SOCKET, SO_TYPE), failed = -1;
    struct ucred who = {0};
    gid_t groups[1024];
    socklen_t groups_size = sizeof groups;
    (void)getsockopt(taken->accepted, SOL_SOCKET, SO_PEERCRED, &who, &size);
    int group_count = -1;
    if (getsockopt(taken->accepted, SOL_SOCKET, SO_PEERGROUPS, groups, &groups_size) == 0)
        group_count = (int)(groups_size / sizeof *groups);
    struct guest guest;
    struct frozen_process *process = who.pid > 1 ? freeze_find(frozen, who.pid) : NULL;
    if (process && !process->zombie && enter(frozen, who.pid, vdso_of(proc, process->alive), &guest)) {
        taken->again = connect_there(&guest, type, &address, length);
        leave(&guest);
    }
    if (taken->again >= 0)
        return;
    taken->again = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (who.pid > 1 && (!process || process->zombie))
        failed = unix_connect_as(&who, groups, group_count, taken->again, &address, length);
    if (failed)
        (void)connect(taken->again, (struct sockaddr *)&address, length);
}

/* ---- what was written ---- */

static bool same_file(int one, int other) {
    return one >= 0 && other >= 0 && syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, one, other) == 0;
}

static void write_again(struct unaccepted *taken) {
    int type = socket_int_option(taken->listener, SOL_SOCKET, SO_TYPE);
    int size = socket_int_option(taken->again, SOL_SOCKET, SO_SNDBUF) / 2, large = 1 << 22, memory = 0;
    int locks = socket_int_option(taken->again, SOL_SOCKET, SO_BUF_LOCK);
    uint64_t bytes = 0;
    struct unix_message message;
    if (taken->client >= 0)
        (void)ioctl(taken->client, SIOCOUTQ, &memory);
    for (uint64_t at = 0; unix_queue_step(taken->queue.data, taken->queue.size, &at, &message);) {
        bytes += message.head.size;
        for (uint32_t i = 0; i < message.head.description_count; i++) { /* a client that was itself on its way */
            uint8_t *place = taken->queue.data + (message.descriptions - taken->queue.data) + i * sizeof(int32_t);
            int32_t fd;
            memcpy(&fd, place, sizeof fd);
            for (size_t j = 0; j < count; j++)
                if (same_file(fd, list[j].client))
                    (void)dup3(list[j].again, fd, O_CLOEXEC);
        }
    }
    uint64_t piece = type == SOCK_STREAM ? unix_queue_piece(bytes, (uint64_t)memory) : 0;
    (void)setsockopt(taken->again, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    for (uint64_t at = 0; unix_queue_step(taken->queue.data, taken->queue.size, &at, &message);)
        bunshin_error_destroy(unix_queue_send(NULL, taken->again, &message, NULL, 0, piece));
    (void)setsockopt(taken->again, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    (void)setsockopt(taken->again, SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof locks);
}

/* ---- back into its places ---- */

/* Sent along the old connection, from the accepted end: no other way leads into a process that may not look at pid 1. */
static int64_t hand_over(struct guest *guest, const struct unaccepted *taken, int old) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec area = {&byte, 1};
    struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    control.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.align), &taken->again, sizeof(int));
    if (sendmsg(taken->accepted, &letter, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return -1;
    struct { /* in the guest's memory */
        struct msghdr letter;
        struct iovec area;
        char byte[16], control[256];
    } there = {.area = {(void *)(uintptr_t)(guest->area + offsetof(typeof(there), byte)), 1}};
    there.letter = (struct msghdr){.msg_iov = (void *)(uintptr_t)(guest->area + offsetof(typeof(there), area)), .msg_iovlen = 1,
                                   .msg_control = (void *)(uintptr_t)(guest->area + offsetof(typeof(there), control)), .msg_controllen = sizeof there.control};
    if (!write_there(guest, 0, &there, sizeof there) ||
        call(guest, SYS_recvmsg, (uint64_t)old, guest->area, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0) != 1)
        return -1;
    struct bunshin_error *error = tracee_read(guest->thread->tid, guest->area, &there, sizeof there);
    int64_t fd = -1;
    there.letter.msg_control = there.control;
    for (struct cmsghdr *item = error ? NULL : CMSG_FIRSTHDR(&there.letter); item; item = CMSG_NXTHDR(&there.letter, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS) {
            int got;
            memcpy(&got, CMSG_DATA(item), sizeof got);
            fd = got;
        }
    bunshin_error_destroy(error);
    return fd;
}

static void place_again(struct unaccepted *taken, struct frozen *frozen) {
    const struct unaccepted_place *place = (const void *)taken->places.data, *watch = (const void *)taken->watches.data;
    size_t places = taken->places.size / sizeof *place, watches = taken->watches.size / sizeof *watch;
    int on = 1;
    (void)setsockopt(taken->client, SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &on, sizeof on);
    for (size_t i = 0; i < places;) {
        struct guest guest;
        size_t end = i;
        while (end < places && place[end].pid == place[i].pid)
            end++;
        if (enter(frozen, place[i].pid, place[i].vdso, &guest)) {
            int64_t fd = hand_over(&guest, taken, place[i].fd);
            for (size_t j = i; fd >= 0 && j < end; j++)
                (void)call(&guest, SYS_dup3, (uint64_t)fd, (uint64_t)place[j].fd, place[j].close_on_exec ? O_CLOEXEC : 0, 0, 0, 0);
            if (fd >= 0)
                (void)call(&guest, SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
            leave(&guest);
        }
        i = end;
    }
    close(taken->client); /* the last one: it leaves the epolls that watched it */
    taken->client = -1;
    for (size_t i = 0; i < watches; i++) {
        struct guest guest;
        struct epoll_event event = {.events = watch[i].events, .data.u64 = watch[i].data};
        if (!enter(frozen, watch[i].pid, watch[i].vdso, &guest))
            continue;
        if (write_there(&guest, 0, &event, sizeof event))
            (void)call(&guest, SYS_epoll_ctl, (uint64_t)watch[i].epoll, EPOLL_CTL_ADD, (uint64_t)watch[i].fd, guest.area, 0, 0);
        leave(&guest);
    }
}

/* ---- the order ---- */

static void finish(struct unaccepted *taken, struct frozen *frozen) {
    if (taken->client >= 0) {
        int flags = fcntl(taken->client, F_GETFL);
        socket_copy_options(taken->client, taken->again);
        write_again(taken);
        struct pollfd state = {.fd = taken->accepted, .events = POLLRDHUP};
        if (poll(&state, 1, 0) == 1 && state.revents & POLLRDHUP)
            (void)shutdown(taken->again, SHUT_WR);
        (void)fcntl(taken->again, F_SETFL, flags);
        place_again(taken, frozen);
    } else {
        if (taken->name_length)
            bunshin_error_destroy(unix_name_bind_gone(&taken->name, taken->name_length, taken->again));
        write_again(taken);
    }
}

static void forget(struct unaccepted *taken) {
    struct unix_message message;
    for (uint64_t at = 0; unix_queue_step(taken->queue.data, taken->queue.size, &at, &message);)
        for (uint32_t i = 0; i < message.head.description_count; i++) {
            int32_t fd;
            memcpy(&fd, message.descriptions + i * sizeof fd, sizeof fd);
            close(fd);
        }
    int own[] = {taken->listener, taken->accepted, taken->client, taken->again};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] >= 0)
            close(own[i]);
    buffer_deinit(&taken->places);
    buffer_deinit(&taken->watches);
    buffer_deinit(&taken->queue);
}

void unaccepted_put_back(struct frozen *frozen, int proc) {
    for (size_t i = 0; i < count; i++)
        if (list[i].accepted >= 0)
            connect_again(&list[i], frozen, proc);
    for (size_t i = 0; i < count; i++)
        if (list[i].accepted >= 0)
            finish(&list[i], frozen);
    for (size_t i = 0; i < count; i++)
        forget(&list[i]);
    free(list);
    list = NULL;
    count = 0;
}
