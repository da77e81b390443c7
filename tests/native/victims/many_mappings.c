/* 4,000 mappings side by side, with rights that alternate. */
#include "victim.h"

#define COUNT 4000

int main(void) {
    char *memory = mmap(NULL, COUNT * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < COUNT; i++)
        if (i % 5)
            memset(memory + i * 4096, i, 4096);
    for (int i = 0; i < COUNT; i += 2)
        must(mprotect(memory + i * 4096, 4096, PROT_READ));
    ready();
    go();
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < 4096; j += 64)
            expect(memory[i * 4096 + j] == (i % 5 ? (char)i : 0), "page %d holds %d", i, memory[i * 4096 + j]);
    int null = (int)must(open("/dev/zero", O_RDONLY));
    for (int i = 0; i < COUNT; i++)
        expect((read(null, memory + i * 4096, 1) == 1) == (i % 2 == 1), "page %d: wrong rights", i);
    ok();
}
