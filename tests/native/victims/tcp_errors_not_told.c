/* Connections refused, reset or closed, of which the program has not been told yet: it is told, once, and what came before can be read. */
#include "inet.h"

int main(void) {
    struct sockaddr_in nobody = four("127.0.0.1", 9);
    int refused = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), told = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), reset[2], fresh = (int)must(socket(AF_INET, SOCK_STREAM, 0)), refused6 = (int)must(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
    struct sockaddr_in6 nobody6 = six("::1", 9);
    expect(connect(refused, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == EINPROGRESS, "connect");
    expect(connect(told, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == EINPROGRESS, "connect");
    expect(connect(refused6, (struct sockaddr *)&nobody6, sizeof nobody6) == -1 && errno == EINPROGRESS, "connect");
    expect(get(told, SOL_SOCKET, SO_ERROR) == ECONNREFUSED, "refused");
    pair_four(reset);
    must(write(reset[1], "before", 6));
    struct linger at_once = {1, 0};
    must(setsockopt(reset[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    close(reset[1]);
    ready();
    go();
    char text[16];
    expect(revents(refused) & POLLERR, "the first is not refused");
    expect(get(refused, SOL_SOCKET, SO_ERROR) == ECONNREFUSED && get(refused, SOL_SOCKET, SO_ERROR) == 0, "told once");
    expect(get(refused6, SOL_SOCKET, SO_ERROR) == ECONNREFUSED, "IPv6");
    expect(get(told, SOL_SOCKET, SO_ERROR) == 0, "told twice");
    expect(revents(reset[0]) & POLLERR, "no error to be seen");
    expect(recv(reset[0], text, 16, 0) == 6, "what came before");
    expect(recv(reset[0], text, 16, 0) == -1 && errno == ECONNRESET, "the reset");
    expect(recv(reset[0], text, 16, 0) == 0, "and then the end");
    expect(recv(fresh, text, 16, 0) == -1 && errno == ENOTCONN, "a fresh one");
    int listener = listen_four(1);
    struct sockaddr_in there = four("127.0.0.1", port_of(listener));
    must(connect(fresh, (struct sockaddr *)&there, sizeof there));
    /* One that was told can try again, after the one connect() that says so. */
    (void)connect(told, (struct sockaddr *)&there, sizeof there);
    if (tcp_state(told) != TCP_ESTABLISHED)
        expect(connect(told, (struct sockaddr *)&there, sizeof there) == -1 && errno == EINPROGRESS, "connecting again");
    expect(tcp_state(told) == TCP_ESTABLISHED, "state %d", tcp_state(told));
    ok();
}
