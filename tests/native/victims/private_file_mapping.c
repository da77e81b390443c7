/* A private mapping of a file: clean pages show the file, written ones keep what was written. */
#include "victim.h"

#define PAGES 200

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    static uint64_t page[512];
    for (uint64_t i = 0; i < PAGES; i++) {
        for (uint64_t j = 0; j < 512; j++)
            page[j] = pattern(i * 512 + j);
        must(write(fd, page, sizeof page));
    }
    uint64_t *memory = mmap(NULL, (PAGES - 1) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    for (uint64_t i = 0; i < PAGES - 1; i += 3)
        memory[i * 512 + 7] = i;
    for (uint64_t i = 100; i < 150; i++)
        memory[i * 512 + 7] = i;
    ready();
    go();
    for (uint64_t i = 0; i < PAGES - 1; i++)
        for (uint64_t j = 0; j < 512; j++) {
            bool written = j == 7 && (i % 3 == 0 || (i >= 100 && i < 150));
            expect(memory[i * 512 + j] == (written ? i : pattern((i + 1) * 512 + j)), "word %lu of page %lu", (unsigned long)j, (unsigned long)i);
        }
    must(pread(fd, page, sizeof page, 101 * 4096));
    expect(page[7] == pattern(101 * 512 + 7), "the file itself was changed");
    must(pwrite(fd, "new", 3, 2 * 4096 + 800));
    expect(!memcmp((char *)memory + 4096 + 800, "new", 3), "a clean page does not show what is written to the file");
    ok();
}
