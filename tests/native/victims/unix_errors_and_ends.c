/* A reset that nobody has been told yet, directions shut on datagrams and listeners, ends closed after their words. */
#include "letters.h"

static int pending_error(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    return error;
}

int main(void) {
    int reset[2], packets[2], listener = bound(SOCK_STREAM, "/tmp/victim-shut"), datagram[2], quiet[2];
    signal(SIGPIPE, SIG_IGN);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, reset));
    must(write(reset[1], "words", 5));
    must(write(reset[0], "unread", 6));
    close(reset[1]);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets));
    must(write(packets[0], "unread", 6));
    close(packets[1]);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, quiet));
    must(write(quiet[1], "first", 5));
    must(write(quiet[1], "second", 6));
    close(quiet[1]);
    must(listen(listener, 3));
    int client = dialled(SOCK_STREAM, "/tmp/victim-shut"), end = (int)must(accept(listener, NULL, NULL));
    must(shutdown(listener, SHUT_RD));
    must(shutdown(end, SHUT_RD));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram));
    must(write(datagram[0], "before", 6));
    must(shutdown(datagram[1], SHUT_RD));
    must(shutdown(datagram[0], SHUT_WR));
    ready();
    go();
    char text[16];
    expect_text(reset[0], "words");
    expect(pending_error(reset[0]) == ECONNRESET && pending_error(reset[0]) == 0, "the reset is not told, or told twice");
    expect(read(reset[0], text, 1) == 0, "not the end");
    expect(recv(packets[0], text, 1, 0) == -1 && errno == ECONNRESET, "the packets' reset");
    expect(recv(packets[0], text, 1, 0) == 0, "not the packets' end");
    expect_text(quiet[0], "first");
    expect_text(quiet[0], "second");
    expect(recv(quiet[0], text, 1, 0) == 0 && pending_error(quiet[0]) == 0, "not the quiet end");
    expect(dial((int)must(socket(AF_UNIX, SOCK_STREAM, 0)), "/tmp/victim-shut") == -1 && errno == ECONNREFUSED, "the listener takes calls");
    expect(write(client, "x", 1) == -1 && errno == EPIPE, "the client may write");
    must(write(end, "down", 4));
    expect_text(client, "down");
    expect_text(datagram[1], "before");
    expect(write(datagram[0], "x", 1) == -1 && errno == EPIPE, "the shut datagram socket sends");
    must(write(datagram[1], "up", 2));
    expect_text(datagram[0], "up");
    ok();
}
