/* 10 GB of address space with a page in use here and there: it stays small. */
#include "victim.h"

#define SIZE (10ull << 30)
#define STEP (37ull << 20)

int main(void) {
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *reserved = mmap(NULL, SIZE * 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(memory != MAP_FAILED && reserved != MAP_FAILED, "no room");
    for (uint64_t at = 0; at + 8 < SIZE; at += STEP)
        *(uint64_t *)(memory + (at & ~7ull)) = pattern(at);
    ready();
    go();
    for (uint64_t at = 0; at + 8 < SIZE; at += STEP) {
        expect(*(uint64_t *)(memory + (at & ~7ull)) == pattern(at), "at %lx", (unsigned long)at);
        expect(*(uint64_t *)(memory + (at & ~4095ull) + (STEP / 2)) == 0, "not zero after %lx", (unsigned long)at);
    }
    must(mprotect(reserved + SIZE, 1 << 20, PROT_READ | PROT_WRITE));
    memset(reserved + SIZE, 1, 1 << 20);
    expect(atol(status_of("VmSize")) > 50l << 20, "%s of address space", status_of("VmSize"));
    expect(atol(status_of("VmRSS")) < 200 << 10, "%s resident", status_of("VmRSS"));
    ok();
}
