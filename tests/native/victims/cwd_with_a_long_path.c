/* A working directory deeper than a path can say. */
#include "victim.h"

int main(void) {
    char name[201];
    memset(name, 'd', 200);
    name[200] = '\0';
    must(chdir(victim_path("")));
    for (int i = 0; i < 40; i++) {
        must(mkdir(name, 0755));
        must(chdir(name));
    }
    ready();
    go();
    must(close((int)must(open("file", O_CREAT | O_WRONLY, 0644))));
    ok();
}
