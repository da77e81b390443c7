/* Connections not accepted yet keep their order and data: a half-closed client, one that has gone, one that was reset, one that waits for room. */
#include "inet.h"

static int listener, port;

static int client(int from, const char *text) {
    struct sockaddr_in own = four("127.0.0.1", from), to = four("127.0.0.1", port);
    int fd = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    must(bind(fd, (struct sockaddr *)&own, sizeof own));
    must(connect(fd, (struct sockaddr *)&to, sizeof to));
    must(write(fd, text, strlen(text)));
    return fd;
}

static int serve(int from, const char *text) {
    char buffer[64] = "";
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    int fd = (int)must(accept(listener, (struct sockaddr *)&peer, &length));
    expect(ntohs(peer.sin_port) == from, "accepted port %d, not %d", ntohs(peer.sin_port), from);
    expect(read(fd, buffer, strlen(text)) == (ssize_t)strlen(text) && !strcmp(buffer, text), "read %s", buffer);
    return fd;
}

int main(void) {
    char buffer[8];
    listener = listen_four(4); /* five fit */
    port = port_of(listener);
    int first = client(7001, "first"), second = client(7002, "second");
    close(client(7003, "has gone"));
    must(shutdown(second, SHUT_WR));
    int reset = client(7004, "reset");
    struct linger at_once = {1, 0};
    must(setsockopt(reset, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    close(reset);
    int fifth = client(7005, "fifth"), sixth = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    struct sockaddr_in own = four("127.0.0.1", 7006), to = four("127.0.0.1", port);
    must(bind(sixth, (struct sockaddr *)&own, sizeof own));
    expect(connect(sixth, (struct sockaddr *)&to, sizeof to) == -1 && errno == EINPROGRESS, "there was room");
    ready();
    go();
    expect(tcp_state(sixth) == TCP_SYN_SENT || slack == 0, "the sixth is in state %d", tcp_state(sixth));
    for (double end = now() + 2; tcp_state(second) == TCP_FIN_WAIT1 && now() < end; nap(0.01)) /* the answer to a FIN may be late */
        ;
    expect(tcp_state(first) == TCP_ESTABLISHED && tcp_state(second) == TCP_FIN_WAIT2, "states %d, %d", tcp_state(first), tcp_state(second));
    int one = serve(7001, "first"), two = serve(7002, "second"), three = serve(7003, "has gone");
    int four_ = serve(7004, "reset"), five = serve(7005, "fifth");
    expect(read(four_, buffer, 1) == -1 && errno == ECONNRESET, "it was not reset");
    expect(read(two, buffer, 1) == 0 && read(three, buffer, 1) == 0, "the ends of streams");
    must(write(two, "answer", 6));
    expect(read(second, buffer, 8) == 6, "an answer to a half-closed client");
    must(write(first, "more", 4));
    expect(read(one, buffer, 4) == 4, "more of the first");
    must(write(five, "back", 4));
    expect(read(fifth, buffer, 4) == 4, "the fifth");
    /* There is room now: its SYN is sent again after a second, or three. */
    int six_ = (int)must(accept(listener, NULL, NULL));
    struct pollfd ask = {.fd = sixth, .events = POLLOUT};
    expect(poll(&ask, 1, 10000) == 1 && get(sixth, SOL_SOCKET, SO_ERROR) == 0, "the sixth never got through");
    must(write(sixth, "late", 4));
    expect(read(six_, buffer, 4) == 4, "the sixth");
    expect(port_of(sixth) == 7006, "port %d", port_of(sixth));
    ok();
}
