/* For victims about sockets of the internet, on the loopback of their workspace. */
#include "victim.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static inline struct sockaddr_in four(const char *address, int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &name.sin_addr);
    return name;
}

static inline struct sockaddr_in6 six(const char *address, int port) {
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    inet_pton(AF_INET6, address, &name.sin6_addr);
    return name;
}

static inline int set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static inline int get(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

static inline int port_of(int fd) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    must(getsockname(fd, (struct sockaddr *)&name, &length));
    return ntohs(((struct sockaddr_in *)(void *)&name)->sin_port);
}

/* A listener on 127.0.0.1. */
static inline int listen_four(int backlog) {
    struct sockaddr_in name = four("127.0.0.1", 0);
    int fd = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(bind(fd, (struct sockaddr *)&name, sizeof name));
    must(listen(fd, backlog));
    return fd;
}

static inline int connect_four(int port) {
    struct sockaddr_in name = four("127.0.0.1", port);
    int fd = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(connect(fd, (struct sockaddr *)&name, sizeof name));
    return fd;
}

/* Both ends of a connection over 127.0.0.1. */
static inline void pair_four(int ret[2]) {
    int listener = listen_four(1);
    ret[0] = connect_four(port_of(listener));
    ret[1] = (int)must(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    close(listener);
}

static inline int tcp_state(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_state : -1;
}

static inline int revents(int fd) {
    struct pollfd ask = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};
    must(poll(&ask, 1, 0));
    return ask.revents;
}

/* Fills a connection as far as it goes; returns how many bytes of the pattern that was. */
static inline size_t fill(int fd) {
    uint64_t words[512];
    size_t total = 0;
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    for (int calm = 0; calm < 20;) {
        for (size_t i = 0; i < 512; i++)
            words[i] = pattern(total / 8 + i);
        size_t odd = total % 8;
        ssize_t put = write(fd, (char *)words + odd, sizeof words - 8);
        if (put > 0) {
            total += (size_t)put;
            calm = 0;
        } else {
            calm++;
            nap(0.005);
        }
    }
    fcntl(fd, F_SETFL, flags);
    return total;
}

/* Reads all of it to the end of the stream, or exactly `size` bytes, and checks the pattern. */
static inline void drain(int fd, size_t size) {
    unsigned char buffer[65536];
    size_t total = 0;
    while (total < size) {
        ssize_t got = read(fd, buffer, sizeof buffer < size - total ? sizeof buffer : size - total);
        expect(got > 0, "the stream ended after %zu of %zu bytes", total, size);
        for (ssize_t i = 0; i < got; i++) {
            uint64_t word = pattern((total + (size_t)i) / 8);
            expect(buffer[i] == (unsigned char)(word >> 8 * ((total + (size_t)i) % 8)), "byte %zu is wrong", total + (size_t)i);
        }
        total += (size_t)got;
    }
}
