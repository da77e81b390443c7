/* 32 MB of private memory, every third page never touched: each word is as it was, and what one fork writes stays its own. */
#include "victim.h"

#define PAGES 8192
#define WORDS 512

int main(void) {
    uint64_t *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t page = 0; page < PAGES; page++)
        for (uint64_t i = 0; page % 3 && i < WORDS; i++)
            memory[page * WORDS + i] = pattern(page * WORDS + i);
    ready();
    go();
    uint64_t own = own_number();
    for (uint64_t page = 0; page < PAGES; page++)
        for (uint64_t i = 0; i < WORDS; i++) {
            uint64_t at = page * WORDS + i;
            expect(memory[at] == (page % 3 ? pattern(at) : 0), "word %lu of page %lu is %lx", (unsigned long)i, (unsigned long)page, (unsigned long)memory[at]);
        }
    for (uint64_t page = 0; page < PAGES; page += 7)
        memory[page * WORDS + 5] = own ^ page;
    nap(0.1);
    for (uint64_t page = 0; page < PAGES; page += 7)
        expect(memory[page * WORDS + 5] == (own ^ page), "page %lu was written by somebody else", (unsigned long)page);
    ok();
}
