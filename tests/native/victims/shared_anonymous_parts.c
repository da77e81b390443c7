/* Shared anonymous memory of which processes have mapped different parts, some of it nobody at the moment. */
#include "victim.h"

#define PAGE 512ul /* words */
#define PAGES 40ul

int main(void) {
    volatile uint64_t *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint64_t page = 0; page < PAGES; page += 2)
        memory[page * PAGE] = pattern(page);
    pid_t child = fork();
    if (child == 0) { /* has 10 to 25 */
        munmap((void *)memory, 10 * 4096);
        munmap((void *)(memory + 26 * PAGE), 14 * 4096);
        go();
        for (uint64_t page = 10; page < 26; page++)
            expect(memory[page * PAGE] == (page % 2 ? 0 : pattern(page)), "page %lu of the child", page);
        memory[12 * PAGE + 1] = 5;
        memory[24 * PAGE + 1] = 6;
        for (int i = 0; !memory[11 * PAGE + 2]; i++, nap(0.002))
            expect(i < 5000, "what the parent wrote is not seen");
        memory[11 * PAGE + 3] = memory[11 * PAGE + 2];
        _exit(0);
    }
    munmap((void *)(memory + 16 * PAGE), 24 * 4096); /* has 0 to 15; what lies above 25 is nobody's */
    ready();
    go();
    for (uint64_t page = 0; page < 16; page++)
        expect(memory[page * PAGE] == (page % 2 ? 0 : pattern(page)), "page %lu", page);
    memory[11 * PAGE + 2] = own_number() | 1;
    child_ends_well(child);
    expect(memory[12 * PAGE + 1] == 5 && memory[11 * PAGE + 3] == memory[11 * PAGE + 2], "what the child wrote is not seen");
    /* Mapped longer, it shows what was there all the time. */
    memory = mremap((void *)memory, 16 * 4096, PAGES * 4096, MREMAP_MAYMOVE);
    expect(memory != MAP_FAILED, "mremap");
    for (uint64_t page = 0; page < PAGES; page++)
        expect(memory[page * PAGE] == (page % 2 ? 0 : pattern(page)), "page %lu, mapped again", page);
    expect(memory[24 * PAGE + 1] == 6, "the child's part");
    ok();
}
