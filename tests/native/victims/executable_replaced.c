/* A program whose file was replaced by another (an upgrade) while it runs. */
#include "victim.h"

int main(int argc, char **argv) {
    char exe[4096] = "", copy[4200];
    must(readlink("/proc/self/exe", exe, sizeof exe - 1));
    if (argc == 1) {
        /* a copy of our own, to be replaced */
        snprintf(copy, sizeof copy, "%s/program", getenv("VICTIM"));
        int from = (int)must(open(exe, O_RDONLY)), to = (int)must(open(copy, O_WRONLY | O_CREAT, 0755));
        char part[65536];
        for (ssize_t got; (got = must(read(from, part, sizeof part))) > 0;)
            must(write(to, part, (size_t)got));
        close(to);
        must(execl(copy, argv[0], "again", (char *)NULL));
    }
    must(unlink(exe));
    int fd = (int)must(open(exe, O_WRONLY | O_CREAT, 0755));
    must(write(fd, "#!/bin/true\n", 12));
    close(fd);
    ready();
    go();
    expect(pattern(7) == pattern(7), "our own code");
    char *memory = malloc(100000);
    memset(memory, 1, 100000);
    ok();
}
