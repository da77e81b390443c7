/*
 * Sockets of the internet, inside the workspace: its network namespace is its own, so every address, port and sequence
 * number can be what it was. This file has addresses and the order; kinds and steps are in files of their own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fork/socket.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

/* ---- addresses ---- */

struct endpoint endpoint_of(const void *address, uint64_t size) {
    struct endpoint endpoint = {0};
    sa_family_t family = 0;
    if (size >= sizeof family)
        memcpy(&family, address, sizeof family);
    if (family == AF_INET && size >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        endpoint.address[10] = endpoint.address[11] = 0xff;
        memcpy(endpoint.address + 12, &four.sin_addr, 4);
        endpoint.port = four.sin_port;
    } else if (family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 six;
        memcpy(&six, address, sizeof six);
        memcpy(endpoint.address, &six.sin6_addr, 16);
        endpoint.port = six.sin6_port;
    }
    return endpoint;
}

bool endpoint_same(const struct endpoint *one, const struct endpoint *other) {
    return one->port == other->port && !memcmp(one->address, other->address, sizeof one->address);
}

socklen_t endpoint_to(const struct endpoint *endpoint, int domain, struct sockaddr_storage *ret) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memset(ret, 0, sizeof *ret);
    if (domain == AF_INET) {
        struct sockaddr_in *four = (void *)ret;
        four->sin_family = AF_INET;
        four->sin_port = endpoint->port;
        memcpy(&four->sin_addr, endpoint->address + 12, 4);
        return memcmp(endpoint->address, mapped, sizeof mapped) ? 0 : sizeof *four;
    }
    struct sockaddr_in6 *six = (void *)ret;
    six->sin6_family = AF_INET6;
    six->sin6_port = endpoint->port;
    memcpy(&six->sin6_addr, endpoint->address, 16);
    return sizeof *six;
}

struct bunshin_error *inet_bind(const struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct sockaddr *address = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    struct endpoint name = endpoint_of(address, record->name.size);
    if (!name.port)
        return NULL;
    int failed = bind(fd, address, (socklen_t)record->name.size) != 0 ? errno : 0;
    if (failed == EADDRINUSE && record->type == SOCK_STREAM && tcp_repair(fd, 1)) {
        /* A socket in repair shares any port: as one does that a listener gave its own to. */
        failed = bind(fd, address, (socklen_t)record->name.size) != 0 ? errno : 0;
        tcp_repair(fd, -1);
    }
    if (failed)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, failed, "cannot bind a socket to port %u: %s", ntohs(name.port), strerrordesc_np(failed));
    return NULL;
}

/* ---- the order ---- */

struct bunshin_error *inet_refuse(struct capture *capture, int32_t description, const char *format, ...) {
    char reason[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description);
    const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
    return bunshin_error_unsupported(record->holder, process ? process->stat.comm : "?", record->holder_fd, "%s", reason);
}

struct bunshin_error *socket_capture_inet(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    if (capture->init->settings.network_host)
        return outside_capture(capture, holder, record);
    if (record->type == SOCK_STREAM && record->protocol == IPPROTO_TCP)
        return tcp_capture(capture, holder, record);
    /* A listener that would also speak MPTCP (Go's are): who connects by TCP gets TCP. */
    if (record->type == SOCK_STREAM && record->protocol == IPPROTO_MPTCP && (record->state == SOCKET_LISTENING || !record->peer_name.size))
        return tcp_capture(capture, holder, record);
    if (record->type == SOCK_DGRAM && (record->protocol == IPPROTO_UDP || record->protocol == IPPROTO_UDPLITE))
        return udp_capture(capture, holder, record);
    return capture_refuse(holder, "a socket of family %d, type %d, protocol %d", record->domain, record->type, record->protocol);
}

struct bunshin_error *inet_rebuild_all(struct rebuild *rebuild) {
    bool udp = false, tcp = false, outside = false;
    for (size_t i = 0; i < rebuild->image->table[TABLE_SOCKET].count; i++) {
        const struct image_socket *record = IMAGE_SOCKET(rebuild->image, i);
        if (record->domain == AF_INET || record->domain == AF_INET6) {
            outside |= record->outside;
            udp |= record->type == SOCK_DGRAM;
            tcp |= record->type == SOCK_STREAM;
        }
    }
    if (outside)
        return outside_rebuild_all(rebuild);
    if (udp)
        TRY(udp_rebuild_all(rebuild));
    if (tcp)
        TRY(tcp_rebuild_all(rebuild));
    return NULL;
}
