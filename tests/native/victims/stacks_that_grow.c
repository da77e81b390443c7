/* Memory that grows downwards grows on when it is touched below its end. */
#include "victim.h"

int main(void) {
    char *area = mmap(NULL, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(area, 64 << 20);
    char *top = mmap(area + (48 << 20), 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    expect(top != MAP_FAILED, "no such memory");
    top[100] = 'g';
    ready();
    go();
    expect(top[100] == 'g', "content");
    for (int i = 1; i < 50; i++) {
        top[-i * 4096 + 1] = (char)i;
        expect(top[-i * 4096 + 1] == (char)i, "page %d below", i);
    }
    ok();
}
