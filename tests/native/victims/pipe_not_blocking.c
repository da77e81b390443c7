/* Flags of each end of a pipe are its own. */
#include "victim.h"

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    must(fcntl(pipes[0], F_SETFL, O_NONBLOCK));
    ready();
    go();
    char x;
    expect(read(pipes[0], &x, 1) == -1 && errno == EAGAIN, "it blocks");
    enum { LARGE = 0100000 }; /* set for what is opened by a name, and of no meaning to a pipe */
    expect((fcntl(pipes[0], F_GETFL) & ~LARGE) == O_NONBLOCK && (fcntl(pipes[1], F_GETFL) & ~LARGE) == O_WRONLY, "flags %x and %x", fcntl(pipes[0], F_GETFL), fcntl(pipes[1], F_GETFL));
    ok();
}
