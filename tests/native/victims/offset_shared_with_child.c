/* A descriptor inherited by a child shares its offset with the parent's. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644)), status;
    must(write(fd, "abcdefghij", 10));
    must(lseek(fd, 2, SEEK_SET));
    pid_t child = fork();
    if (child == 0) {
        char letter;
        go();
        must(read(fd, &letter, 1));
        _exit(letter);
    }
    until_asleep(child);
    ready();
    go();
    must(waitpid(child, &status, 0));
    expect(WEXITSTATUS(status) == 'c', "the child read %c", WEXITSTATUS(status));
    expect(lseek(fd, 0, SEEK_CUR) == 3, "the parent stands at %ld", (long)lseek(fd, 0, SEEK_CUR));
    ok();
}
