/* A process blocked in writing to a full pipe: every byte comes, once, in order. */
#include "victim.h"

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        static char data[200000];
        close(pipes[0]);
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (char)pattern(i);
        for (size_t done = 0; done < sizeof data;) {
            ssize_t put = write(pipes[1], data + done, sizeof data - done);
            expect(put > 0, "write failed after %zu", done);
            done += (size_t)put;
        }
        _exit(0);
    }
    close(pipes[1]);
    until_asleep(child);
    ready();
    go();
    size_t total = 0;
    char part[3000];
    for (ssize_t got; (got = must(read(pipes[0], part, sizeof part))) > 0; total += (size_t)got)
        for (ssize_t i = 0; i < got; i++)
            expect(part[i] == (char)pattern(total + (size_t)i), "byte %zu", total + (size_t)i);
    expect(total == 200000, "%zu bytes", total);
    child_ends_well(child);
    ok();
}
