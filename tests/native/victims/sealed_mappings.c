/* Mappings that can be changed no more (mseal): their rights and their place stay, content can be written. */
#include "victim.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

int main(void) {
    char *memory = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 's', 8 * 4096);
    must(mprotect(memory + 4 * 4096, 2 * 4096, PROT_READ));
    long sealed = syscall(SYS_mseal, memory + 2 * 4096, 4 * 4096ul, 0ul);
    ready();
    go();
    for (int i = 0; i < 8 * 4096; i++)
        expect(memory[i] == 's', "byte %d", i);
    memory[3 * 4096] = 'w';
    must(mprotect(memory, 2 * 4096, PROT_READ));
    must(mprotect(memory + 6 * 4096, 4096, PROT_NONE));
    if (sealed == 0) {
        expect(mprotect(memory + 4 * 4096, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EPERM, "its rights can be changed");
        expect(munmap(memory + 2 * 4096, 4096) == -1 && errno == EPERM, "it can be unmapped");
        expect(mmap(memory + 3 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED, "it can be covered");
        expect(mremap(memory + 3 * 4096, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED, "it can be moved");
    }
    ok();
}
