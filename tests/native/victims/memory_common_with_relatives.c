/* What a parent and its children have in common after fork(), and what each has written since, in stretches of many lengths. */
#include "victim.h"

#define PAGES 700
#define CHILDREN 4
#define PAGE 4096

static unsigned char *memory;

/* Child `who` has written every other stretch of 2, 4, 8 … pages; 0 is the parent, who wrote all before. */
static bool is_written(int who, int page) { return who && page / (1 << who) % 2; }
static unsigned char expected(int who, int page) { return (unsigned char)(is_written(who, page) ? who * 31 + page : page * 7); }

static void write_own(int who) {
    for (int page = 0; page < PAGES; page++)
        if (!who || is_written(who, page))
            memset(memory + page * PAGE, expected(who, page), PAGE);
}

static bool is_own(int who) {
    for (int page = 0; page < PAGES; page++)
        for (int at = 0; at < PAGE; at++)
            if (memory[page * PAGE + at] != expected(who, page))
                return false;
    return true;
}

static _Noreturn void child(int who, int ask, int answer) {
    char word;
    write_own(who);
    must(write(answer, "r", 1));
    while (read(ask, &word, 1) == 1) {
        expect(is_own(who), "child %d has other memory", who);
        memset(memory, who, PAGES * PAGE); /* what relatives still share in the fork must not change with it */
        must(write(answer, "+", 1));
    }
    _exit(0);
}

int main(void) {
    int ask[CHILDREN][2], answer[2];
    char word;
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED, "mmap");
    must(pipe(answer));
    write_own(0);
    for (int i = 0; i < CHILDREN; i++) {
        must(pipe(ask[i]));
        if (must(fork()) == 0)
            child(i + 1, ask[i][0], answer[1]);
        expect(read(answer[0], &word, 1) == 1, "child %d does not get ready", i + 1);
    }
    ready();
    go();
    for (int i = 0; i < CHILDREN; i++) {
        must(write(ask[i][1], "?", 1));
        expect(read(answer[0], &word, 1) == 1 && word == '+', "child %d does not answer", i + 1);
    }
    expect(is_own(0), "the parent has other memory");
    ok();
}
