/* A private mapping of a file that was deleted and closed. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    static uint64_t page[512];
    for (uint64_t i = 0; i < 20; i++) {
        for (uint64_t j = 0; j < 512; j++)
            page[j] = pattern(i * 512 + j);
        must(write(fd, page, sizeof page));
    }
    uint64_t *memory = mmap(NULL, 20 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    memory[4 * 512] = 1;
    close(fd);
    must(unlink(victim_path("file")));
    ready();
    go();
    for (uint64_t i = 0; i < 20 * 512; i++)
        expect(memory[i] == (i == 4 * 512 ? 1 : pattern(i)), "word %lu", (unsigned long)i);
    memory[9] = 5;
    expect(access(victim_path("file"), F_OK) == -1, "the file is back");
    ok();
}
