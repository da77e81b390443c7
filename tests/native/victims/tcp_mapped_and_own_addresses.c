/* IPv4 clients of an IPv6 listener, addresses other than 127.0.0.1, and several connections that share a port: each end has the names it had. */
#include "inet.h"

static void named(int fd, bool peer, const char *address, int port) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    char text[64];
    must(peer ? getpeername(fd, (struct sockaddr *)&name, &length) : getsockname(fd, (struct sockaddr *)&name, &length));
    void *at = name.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)(void *)&name)->sin_addr : &((struct sockaddr_in6 *)(void *)&name)->sin6_addr;
    inet_ntop(name.ss_family, at, text, sizeof text);
    expect(!strcmp(text, address) && ntohs(((struct sockaddr_in *)(void *)&name)->sin_port) == port, "%s is %s:%d, not %s:%d", peer ? "peer" : "own", text, ntohs(((struct sockaddr_in *)(void *)&name)->sin_port), address, port);
}

static void talk(int one, int other) {
    char text[16] = "";
    expect(recv(other, text, 16, MSG_DONTWAIT) == 2 && !strcmp(text, "hi"), "read %s", text);
    must(write(other, "ho", 2));
    expect(recv(one, text, 16, 0) == 2, "answer");
}

int main(void) {
    struct sockaddr_in6 any = six("::", 8001), own6 = six("::1", 8003);
    struct sockaddr_in own = four("127.0.0.5", 8002), to = four("127.0.0.7", 8001), same = four("127.0.0.5", 8002), elsewhere = four("127.0.0.8", 8001);
    int listener = (int)must(socket(AF_INET6, SOCK_STREAM, 0)), client = (int)must(socket(AF_INET, SOCK_STREAM, 0)), client2 = (int)must(socket(AF_INET, SOCK_STREAM, 0)), client6 = (int)must(socket(AF_INET6, SOCK_STREAM, 0)), late = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    must(set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0));
    must(bind(listener, (struct sockaddr *)&any, sizeof any));
    must(listen(listener, 8));
    must(set(client, SOL_SOCKET, SO_REUSEADDR, 1)), must(set(client2, SOL_SOCKET, SO_REUSEADDR, 1));
    must(bind(client, (struct sockaddr *)&own, sizeof own)), must(bind(client2, (struct sockaddr *)&same, sizeof same));
    must(connect(client, (struct sockaddr *)&to, sizeof to));
    int served = (int)must(accept(listener, NULL, NULL));
    must(connect(client2, (struct sockaddr *)&elsewhere, sizeof elsewhere));
    int served2 = (int)must(accept(listener, NULL, NULL));
    must(bind(client6, (struct sockaddr *)&own6, sizeof own6));
    struct sockaddr_in6 to6 = six("::1", 8001);
    must(connect(client6, (struct sockaddr *)&to6, sizeof to6));
    int served6 = (int)must(accept(listener, NULL, NULL));
    must(connect(late, (struct sockaddr *)&to, sizeof to)); /* not accepted yet, and from a port of the kernel's choice */
    int late_port = port_of(late);
    must(write(client, "hi", 2)), must(write(client2, "hi", 2)), must(write(client6, "hi", 2)), must(write(late, "hi", 2));
    ready();
    go();
    named(client, false, "127.0.0.5", 8002), named(client, true, "127.0.0.7", 8001);
    named(served, false, "::ffff:127.0.0.7", 8001), named(served, true, "::ffff:127.0.0.5", 8002);
    named(client2, false, "127.0.0.5", 8002), named(client2, true, "127.0.0.8", 8001);
    named(served2, true, "::ffff:127.0.0.5", 8002), named(served6, true, "::1", 8003), named(client6, true, "::1", 8001);
    talk(client, served), talk(client2, served2), talk(client6, served6);
    int served_late = (int)must(accept(listener, NULL, NULL));
    named(served_late, true, "::ffff:127.0.0.1", late_port);
    talk(late, served_late);
    expect(get(client, SOL_SOCKET, SO_REUSEADDR) == 1 && get(served, SOL_SOCKET, SO_REUSEADDR) == 0, "SO_REUSEADDR");
    close(client), close(served);
    int again = (int)must(socket(AF_INET6, SOCK_STREAM, 0));
    expect(bind(again, (struct sockaddr *)&any, sizeof any) == -1 && errno == EADDRINUSE, "the port is free");
    ok();
}
