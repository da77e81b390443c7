/* A deleted file that nobody has open any more, mapped shared by two processes: one may write it, one only reads a part. */
#include "victim.h"

enum { PAGES = 600 };

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    must(ftruncate(fd, PAGES * 4096));
    volatile uint64_t *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < PAGES; i += 7)
        memory[i * 512 + 3] = (uint64_t)i * 11 + 1;
    int reader = (int)must(open(victim_path("file"), O_RDONLY));
    volatile const uint64_t *part = mmap(NULL, 100 * 4096, PROT_READ, MAP_SHARED, reader, 300 * 4096);
    close(fd);
    close(reader);
    must(unlink(victim_path("file")));
    pid_t child = fork();
    if (child == 0) {
        munmap((void *)(uintptr_t)memory, PAGES * 4096);
        go();
        for (int i = 0; part[5] != 4711; i++, nap(0.005))
            expect(i < 2000, "what the parent writes is not seen");
        for (int i = 300; i < 400; i++)
            expect(part[(i - 300) * 512 + 3] == (i % 7 ? 0 : (uint64_t)i * 11 + 1), "content of page %d", i);
        expect(mprotect((void *)(uintptr_t)part, 4096, PROT_READ | PROT_WRITE) == -1, "it may be written now");
        _exit(0);
    }
    ready();
    go();
    for (int i = 0; i < PAGES; i++)
        expect(memory[i * 512 + 3] == (i % 7 ? 0 : (uint64_t)i * 11 + 1), "content of page %d", i);
    expect(access(victim_path("file"), F_OK) == -1, "it has a name again");
    memory[300 * 512 + 5] = 4711;
    expect(part[5] == 4711, "the two mappings are of different files");
    child_ends_well(child);
    ok();
}
