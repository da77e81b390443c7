/* A private mapping of a large file, every other page of it written. */
#include "victim.h"

#define PAGES 10000

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    must(ftruncate(fd, PAGES * 4096));
    for (int i = 0; i < PAGES; i += 10)
        must(pwrite(fd, "file", 4, (off_t)i * 4096 + 4096 - 4));
    char *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    for (int i = 0; i < PAGES; i += 2)
        memory[i * 4096] = (char)(i % 100 + 1);
    ready();
    go();
    for (int i = 0; i < PAGES; i++) {
        expect(memory[i * 4096] == (i % 2 ? 0 : (char)(i % 100 + 1)), "page %d begins with %d", i, memory[i * 4096]);
        expect(!memcmp(memory + i * 4096 + 4092, i % 10 ? "\0\0\0\0" : "file", 4), "page %d ends with %.4s", i, memory + i * 4096 + 4092);
    }
    ok();
}
