/* A pair of stream sockets with bytes waiting in both directions, one end in a child. */
#include "victim.h"
#include <sys/socket.h>

int main(void) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    static char data[50000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)pattern(i);
    must(write(pair[0], data, sizeof data));
    must(write(pair[1], "back", 4));
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        go();
        char part[777];
        for (size_t have = 0; have < sizeof data;) {
            ssize_t got = must(read(pair[1], part, sizeof part));
            expect(got > 0 && !memcmp(part, data + have, (size_t)got), "other bytes after %zu", have);
            have += (size_t)got;
        }
        must(write(pair[1], "done", 4));
        expect(read(pair[1], part, 1) == 0, "the end");
        _exit(0);
    }
    close(pair[1]);
    ready();
    go();
    char text[16] = "";
    expect(read(pair[0], text, 4) == 4 && !memcmp(text, "back", 4), "read %s", text);
    expect(read(pair[0], text, 4) == 4 && !memcmp(text, "done", 4), "read %s", text);
    close(pair[0]);
    child_ends_well(child);
    ok();
}
