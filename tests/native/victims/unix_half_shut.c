/* A connection shut in one direction, and one whose other side has gone leaving words behind. */
#include "victim.h"
#include <sys/socket.h>

int main(void) {
    int pair[2], gone[2];
    signal(SIGPIPE, SIG_IGN);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    must(write(pair[0], "last", 4));
    must(shutdown(pair[0], SHUT_WR));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, gone));
    must(write(gone[1], "left", 4));
    close(gone[1]);
    ready();
    go();
    char text[16] = "";
    expect(read(pair[1], text, 15) == 4 && !strcmp(text, "last"), "read %s", text);
    expect(read(pair[1], text, 15) == 0, "not the end");
    expect(write(pair[0], "x", 1) == -1 && errno == EPIPE, "the shut direction is open");
    must(write(pair[1], "answer", 6));
    expect(read(pair[0], text, 15) == 6, "the other direction");
    expect(read(gone[0], text, 15) == 4 && !memcmp(text, "left", 4), "read %s", text);
    expect(read(gone[0], text, 15) == 0, "not the end of what is gone");
    expect(write(gone[0], "x", 1) == -1 && errno == EPIPE, "somebody is there again");
    ok();
}
