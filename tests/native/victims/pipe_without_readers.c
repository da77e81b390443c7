/* Writing to a pipe that nobody reads fails as before. */
#include "victim.h"

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    close(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    ready();
    go();
    expect(write(pipes[1], "x", 1) == -1 && errno == EPIPE, "somebody reads");
    ok();
}
