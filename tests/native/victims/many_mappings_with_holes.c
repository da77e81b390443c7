/* 14,000 mappings, each written in two places far apart: a fork needs no more mappings than there may be. */
#include "victim.h"

#define COUNT 14000ul
#define PAGES 80ul
#define PAGE 4096ul

int main(void) {
    char *memory = mmap(NULL, COUNT * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(memory != MAP_FAILED, "no room");
    for (unsigned long i = 0; i < COUNT; i++) {
        char *mapping = memory + i * PAGES * PAGE;
        mapping[5 * PAGE] = mapping[70 * PAGE] = (char)(i % 120 + 1);
        if (i % 2)
            must(mprotect(mapping, PAGES * PAGE, PROT_READ));
    }
    ready();
    go();
    for (unsigned long i = 0; i < COUNT; i++) {
        volatile char *mapping = memory + i * PAGES * PAGE, word = (char)(i % 120 + 1);
        expect(mapping[5 * PAGE] == word && mapping[70 * PAGE] == word && mapping[40 * PAGE] == 0, "mapping %lu", i);
    }
    must(mprotect(memory + 2 * PAGES * PAGE, PAGES * PAGE, PROT_NONE));
    must(munmap(memory + 6 * PAGES * PAGE + 30 * PAGE, PAGE));
    ok();
}
