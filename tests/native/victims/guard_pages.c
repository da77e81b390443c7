/* Pages that may not be touched, with something behind: touching faults as before, and the content is there when allowed. */
#include "victim.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile void *where;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    where = info->si_addr;
    siglongjmp(back, 1);
}

int main(void) {
    char *memory = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 'x', 5 * 4096);
    must(mprotect(memory, 4096, PROT_NONE));
    must(mprotect(memory + 2 * 4096, 4096, PROT_READ));
    must(mprotect(memory + 4 * 4096, 4096, PROT_NONE));
    must(madvise(memory + 4 * 4096, 4096, MADV_DONTNEED));
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSEGV, &action, NULL));
    ready();
    go();
    static const int page[] = {0, 2, 4};
    for (int i = 0; i < 3; i++) {
        where = NULL;
        if (sigsetjmp(back, 1) == 0) {
            if (page[i] != 2)
                expect(((volatile char *)memory)[page[i] * 4096 + 9] == 0 && false, "page %d can be read", page[i]);
            ((volatile char *)memory)[page[i] * 4096 + 9] = 1;
            expect(false, "page %d can be written", page[i]);
        }
        expect(where == memory + page[i] * 4096 + 9, "the fault is at %p", (void *)where);
    }
    must(mprotect(memory, 5 * 4096, PROT_READ | PROT_WRITE));
    for (int i = 0; i < 5 * 4096; i++)
        expect(memory[i] == (i < 4 * 4096 ? 'x' : 0), "byte %d of page %d is %d", i % 4096, i / 4096, memory[i]);
    ok();
}
