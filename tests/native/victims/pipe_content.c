/* Unread bytes in a pipe, of a size of its own, and the end of it once the writers are gone. */
#include "victim.h"

int main(void) {
    int pipes[2], closed[2];
    must(pipe2(pipes, O_CLOEXEC));
    must(fcntl(pipes[1], F_SETPIPE_SZ, 1 << 17));
    static char data[70000], back[70000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)pattern(i);
    must(write(pipes[1], data, sizeof data));
    must(read(pipes[0], back, 100));
    must(pipe(closed));
    must(write(closed[1], "last words", 10));
    close(closed[1]);
    ready();
    go();
    expect(fcntl(pipes[0], F_GETPIPE_SZ) == 1 << 17, "size %d", fcntl(pipes[0], F_GETPIPE_SZ));
    expect(fcntl(pipes[0], F_GETFD) == FD_CLOEXEC, "close-on-exec");
    for (size_t have = 100; have < sizeof data;) {
        ssize_t got = must(read(pipes[0], back, 5000));
        expect(!memcmp(back, data + have, (size_t)got), "other bytes after %zu", have);
        have += (size_t)got;
    }
    uint64_t own = own_number(), word;
    must(write(pipes[1], &own, sizeof own));
    nap(0.05);
    expect(read(pipes[0], &word, sizeof word) == sizeof word && word == own, "somebody else writes here");
    expect(read(closed[0], back, 100) == 10 && !memcmp(back, "last words", 10), "the last words are lost");
    expect(read(closed[0], back, 100) == 0, "the end is lost");
    ok();
}
