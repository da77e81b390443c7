/* Locked memory stays locked. */
#include "victim.h"

int main(void) {
    char *memory = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 'l', 32768);
    must(mlock(memory, 32768));
    ready();
    go();
    for (int i = 0; i < 32768; i++)
        expect(memory[i] == 'l', "byte %d", i);
    expect(atoi(status_of("VmLck")) == 32, "%s locked, not 32 kB", status_of("VmLck"));
    ok();
}
