/* A shared mapping of a deleted file that is still open, by two processes. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    must(ftruncate(fd, 8 * 4096));
    volatile uint64_t *memory = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memory[700] = 42;
    must(unlink(victim_path("file")));
    pid_t child = fork();
    if (child == 0) {
        go();
        memory[1] = ~memory[0];
        for (int i = 0; memory[1] != ~memory[0] || !memory[0]; i++, nap(0.005)) {
            expect(i < 2000, "the parent's word is not seen");
            memory[1] = ~memory[0];
        }
        _exit(0);
    }
    ready();
    go();
    expect(memory[700] == 42, "content");
    memory[0] = own_number() | 1;
    child_ends_well(child);
    expect(memory[1] == ~memory[0], "the child's word is not seen");
    uint64_t word;
    must(pread(fd, &word, 8, 0));
    expect(word == memory[0], "the file is another than the mapping");
    ok();
}
