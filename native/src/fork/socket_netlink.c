/*
 * Netlink sockets: address, groups, options, filter. What waits in one cannot be put back: only the kernel can send as the
 * kernel. So a netlink socket is kept at rest, and one with unread messages is refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fork/socket.h"

#define GROUP_WORDS 64

struct netlink_more {
    uint32_t group_words;
    uint32_t groups[GROUP_WORDS];
    uint32_t filter_length;
    struct sock_filter filter[]; /* a classic one */
};

/* ---- capture ---- */

struct bunshin_error *socket_capture_netlink(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct pollfd state = {.fd = holder->copy, .events = POLLIN};
    if (poll(&state, 1, 0) < 0)
        return bunshin_error_os("cannot look at a netlink socket");
    if (state.revents & POLLERR)
        return capture_refuse(holder, "a netlink socket that has lost messages and has not been told so yet");
    if (state.revents & POLLIN) {
        capture_unread(capture, holder->copy);
        return capture_refuse(holder, "a netlink socket with messages not read yet");
    }
    struct netlink_more more = {0};
    socklen_t length = sizeof more.groups;
    if (getsockopt(holder->copy, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, more.groups, &length) != 0 || length > sizeof more.groups)
        return capture_refuse(holder, "a netlink socket whose groups cannot be read");
    more.group_words = length / sizeof *more.groups;
    socklen_t instructions = 0;
    if (getsockopt(holder->copy, SOL_SOCKET, SO_GET_FILTER, NULL, &instructions) != 0)
        return capture_refuse(holder, "a netlink socket with an eBPF filter");
    struct sock_filter *filter = calloc(instructions + 1u, sizeof *filter);
    if (!filter)
        return bunshin_error_no_memory();
    struct bunshin_error *error = NULL;
    more.filter_length = instructions;
    if (instructions && getsockopt(holder->copy, SOL_SOCKET, SO_GET_FILTER, filter, &instructions) != 0)
        error = bunshin_error_os("cannot read a socket's filter");
    struct buffer whole = {0};
    if (!error)
        error = buffer_append(&whole, &more, sizeof more);
    if (!error)
        error = buffer_append(&whole, filter, more.filter_length * sizeof *filter);
    if (!error)
        error = capture_heap(capture, whole.data, whole.size, &record->queue);
    buffer_deinit(&whole);
    free(filter);
    return error;
}

/* ---- rebuild ---- */

struct bunshin_error *socket_rebuild_netlink(struct rebuild *rebuild, int32_t index, const struct image_socket *record) {
    const struct netlink_more *more = (const void *)IMAGE_HEAP(rebuild->image, record->queue);
    const struct sockaddr_nl *name = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    const struct sockaddr_nl *peer = (const void *)IMAGE_HEAP(rebuild->image, record->peer_name);
    int fd = socket(AF_NETLINK, record->type | SOCK_CLOEXEC, record->protocol);
    if (fd < 0)
        return bunshin_error_os("cannot make a netlink socket");
    struct bunshin_error *error = NULL;
    struct sock_fprog program = {(unsigned short)more->filter_length, (struct sock_filter *)(uintptr_t)more->filter};
    if (more->filter_length && setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
        error = bunshin_error_os("cannot filter a netlink socket again");
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_pid = name->nl_pid};
    if (!error && name->nl_pid && bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        error = bunshin_error_os("cannot bind a netlink socket to port %u", name->nl_pid);
    for (unsigned group = 1; !error && group <= more->group_words * 32; group++)
        if (more->groups[(group - 1) / 32] & (1u << ((group - 1) % 32)) &&
            setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) != 0)
            error = bunshin_error_os("cannot join netlink group %u", group);
    if (!error && record->peer_name.size >= sizeof *peer && (peer->nl_pid || peer->nl_groups) &&
        connect(fd, (const struct sockaddr *)peer, sizeof *peer) != 0)
        error = bunshin_error_os("cannot connect a netlink socket");
    if (error) {
        close(fd);
        return error;
    }
    socket_set_options(rebuild, record, fd);
    return rebuild_place(rebuild, index, fd);
}
