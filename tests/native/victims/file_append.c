/* A file open for appending appends, whoever else made it longer. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("log"), O_WRONLY | O_CREAT | O_APPEND, 0644)), other;
    must(write(fd, "one\n", 4));
    ready();
    go();
    expect(fcntl(fd, F_GETFL) & O_APPEND && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY, "flags %x", fcntl(fd, F_GETFL));
    other = (int)must(open(victim_path("log"), O_WRONLY | O_APPEND));
    must(write(other, "two\n", 4));
    must(write(fd, "three\n", 6));
    char text[64] = "";
    other = (int)must(open(victim_path("log"), O_RDONLY));
    must(read(other, text, sizeof text - 1));
    expect(!strcmp(text, "one\ntwo\nthree\n"), "the log: %s", text);
    ok();
}
