/* A file of 8 GB with three pages in it, open, and deleted. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    for (int i = 0; i < 3; i++)
        must(pwrite(fd, "page", 4, (off_t)i * (3ll << 30)));
    must(ftruncate(fd, 8ll << 30));
    must(unlink(victim_path("file")));
    ready();
    go();
    struct stat info;
    must(fstat(fd, &info));
    expect(info.st_size == 8ll << 30 && info.st_blocks < 1000, "%ld bytes in %ld blocks", (long)info.st_size, (long)info.st_blocks);
    for (int i = 0; i < 3; i++) {
        char text[9] = "";
        must(pread(fd, text, 8, (off_t)i * (3ll << 30)));
        expect(!memcmp(text, "page\0\0\0\0", 8), "page %d: %s", i, text);
    }
    ok();
}
