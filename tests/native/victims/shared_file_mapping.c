/* A shared mapping of a file, with another process that writes the file: all see one content, in this fork alone. */
#include "victim.h"

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644)), pipes[2], back[2];
    must(ftruncate(fd, 32 * 4096));
    volatile uint64_t *memory = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (uint64_t i = 0; i < 32 * 512; i += 2)
        memory[i] = pattern(i);
    must(pipe(pipes));
    must(pipe(back));
    pid_t child = fork();
    if (child == 0) {
        uint64_t number;
        munmap((void *)memory, 32 * 4096);
        while (read(pipes[0], &number, sizeof number) == sizeof number && number) {
            must(pwrite(fd, &number, sizeof number, 5 * 4096 + 8));
            must(write(back[1], "x", 1));
        }
        _exit(0);
    }
    until_asleep(child);
    ready();
    go();
    for (uint64_t i = 0; i < 32 * 512; i++)
        expect(memory[i] == (i % 2 ? 0 : pattern(i)), "word %lu", (unsigned long)i);
    for (int round = 0; round < 10; round++) {
        uint64_t own = own_number() | 1, word = 0;
        char x;
        must(write(pipes[1], &own, sizeof own));
        must(read(back[0], &x, 1));
        nap(0.01);
        expect(memory[5 * 512 + 1] == own, "the writer's word is not seen in round %d", round);
        memory[3] = ~own;
        must(pread(fd, &word, 8, 24));
        expect(word == ~own, "what is written to memory is not in the file");
    }
    uint64_t end = 0;
    must(write(pipes[1], &end, sizeof end));
    child_ends_well(child);
    int again = (int)must(open(victim_path("file"), O_RDONLY));
    must(pread(again, &end, 8, 5 * 4096 + 8));
    expect(end == memory[5 * 512 + 1], "the file by its name is another one");
    ok();
}
