/* A FIFO with content, its ends in two processes, opened a third time by its name. */
#include "victim.h"

int main(void) {
    must(mkfifo(victim_path("fifo"), 0600));
    int reader = (int)must(open(victim_path("fifo"), O_RDONLY | O_NONBLOCK)), pipes[2];
    must(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        close(reader);
        int writer = (int)must(open(victim_path("fifo"), O_WRONLY));
        must(write(writer, "before ", 7));
        must(write(pipes[1], "x", 1));
        go();
        must(write(writer, "after ", 6));
        must(write(pipes[1], "y", 1));
        for (;;)
            pause();
    }
    char x, text[64] = "";
    must(read(pipes[0], &x, 1));
    ready();
    go();
    must(read(pipes[0], &x, 1));
    int third = (int)must(open(victim_path("fifo"), O_WRONLY));
    must(write(third, "named", 5));
    must(read(reader, text, 63));
    expect(!strcmp(text, "before after named"), "read %s", text);
    must(kill(child, SIGKILL));
    must(waitpid(child, NULL, 0));
    close(third);
    expect(read(reader, text, 1) == 0, "a writer is left over");
    ok();
}
