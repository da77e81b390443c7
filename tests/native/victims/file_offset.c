/* A file that is read and written goes on where it stood, each fork with its own content from then on. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    char text[64] = "";
    must(write(fd, "0123456789abcdef", 16));
    must(lseek(fd, 4, SEEK_SET));
    must(read(fd, text, 3));
    ready();
    go();
    expect(lseek(fd, 0, SEEK_CUR) == 7, "at %ld", (long)lseek(fd, 0, SEEK_CUR));
    expect(read(fd, text, 4) == 4 && !memcmp(text, "789a", 4), "read %s", text);
    uint64_t own = own_number(), word;
    must(write(fd, &own, sizeof own));
    expect(lseek(fd, 0, SEEK_CUR) == 19, "at %ld after writing", (long)lseek(fd, 0, SEEK_CUR));
    nap(0.1);
    must(pread(fd, &word, sizeof word, 11));
    expect(word == own, "somebody else writes here");
    int again = (int)must(open(victim_path("file"), O_RDONLY));
    must(pread(again, &word, sizeof word, 11));
    expect(word == own, "by its name it is another file");
    struct stat first, second;
    must(fstat(fd, &first));
    must(fstat(again, &second));
    expect(first.st_ino == second.st_ino && first.st_dev == second.st_dev && first.st_size == 19, "another inode, or %ld bytes", (long)first.st_size);
    ok();
}
