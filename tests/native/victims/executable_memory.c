/* Code that a program wrote for itself runs on, and can be written anew. */
#include "victim.h"

typedef int function(int);

static const unsigned char add[] = {0x8d, 0x47, 7, 0xc3};        /* lea 7(%rdi), %eax; ret */
static const unsigned char times[] = {0x6b, 0xc7, 3, 0xc3};      /* imul $3, %edi, %eax; ret */

int main(void) {
    unsigned char *code = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, add, sizeof add);
    memcpy(code + 4096, times, sizeof times);
    must(mprotect(code, 4096, PROT_READ | PROT_EXEC));
    must(mprotect(code + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
    function *first = (function *)(uintptr_t)code, *second = (function *)(uintptr_t)(code + 4096);
    expect(first(1) == 8 && second(5) == 15, "wrong from the start");
    ready();
    go();
    expect(first(1) == 8 && second(5) == 15, "%d and %d", first(1), second(5));
    code[4096 + 2] = 11;
    expect(second(5) == 55, "code written anew gives %d", second(5));
    ok();
}
