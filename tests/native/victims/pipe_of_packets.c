/* A pipe in packet mode keeps the borders of what was written before and after. */
#include "victim.h"

int main(void) {
    int pipes[2];
    char text[64] = "";
    must(pipe2(pipes, O_DIRECT));
    must(write(pipes[1], "one", 3));
    must(write(pipes[1], "twotwo", 6));
    ready();
    go();
    must(write(pipes[1], "three", 5));
    expect(read(pipes[0], text, 64) == 3 && !memcmp(text, "one", 3), "first packet: %s", text);
    expect(read(pipes[0], text, 64) == 6 && !memcmp(text, "twotwo", 6), "second packet: %s", text);
    expect(read(pipes[0], text, 64) == 5 && !memcmp(text, "three", 5), "third packet: %s", text);
    ok();
}
