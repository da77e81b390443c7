/* The heap grows and shrinks after the fork from where it ended before. */
#include "victim.h"

int main(void) {
    char *begin = sbrk(0);
    expect(sbrk(300000) == begin, "no heap");
    memset(begin, 'h', 300000);
    char *top = sbrk(0);
    char *small = malloc(1000);
    strcpy(small, "small");
    top = sbrk(0);
    ready();
    go();
    expect(sbrk(0) == top, "the heap ends at %p, ended at %p", sbrk(0), (void *)top);
    for (int i = 0; i < 300000; i++)
        expect(begin[i] == 'h', "byte %d", i);
    expect(sbrk(1 << 20) == top, "the heap does not grow");
    for (int i = 0; i < 1 << 20; i++)
        expect(top[i] == 0, "fresh memory holds %d", top[i]);
    memset(top, 'n', 1 << 20);
    expect(brk(top) == 0 && sbrk(0) == top, "the heap does not shrink");
    expect(!strcmp(small, "small"), "malloc's memory");
    for (int i = 0; i < 1000; i++) {
        char *more = malloc(10000);
        expect(more != NULL, "no more memory");
        memset(more, i, 10000);
    }
    ok();
}
