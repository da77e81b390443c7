/* A read that waits for a pipe goes on waiting, and gets what is written after the fork. */
#include "blocked.h"

static int pipes[2];

static void end_it(void) { must(write(pipes[1], "late", 4)); }

int main(void) {
    char text[16] = "";
    must(pipe(pipes));
    pthread_t id = herald_start(end_it);
    ssize_t got = read(pipes[0], text, 15);
    expect(got == 4 && !strcmp(text, "late"), "read gave %zd: %s", got, text);
    pthread_join(id, NULL);
    ok();
}
