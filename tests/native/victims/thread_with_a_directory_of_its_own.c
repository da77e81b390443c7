/* A thread that has left the working directory of the others (unshare), as file servers do. Kept, or refused by name. */
#include "victim.h"

static atomic_int apart, over;

static void *thread(void *argument) {
    char cwd[64];
    must(unshare(CLONE_FS));
    must(chdir("/usr"));
    apart = 1;
    while (!over)
        nap(0.005);
    expect(getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/usr"), "the thread is in %s", cwd);
    return argument;
}

int main(void) {
    pthread_t id;
    char cwd[256];
    must(-pthread_create(&id, NULL, thread, NULL));
    while (!apart)
        nap(0.001);
    ready();
    go();
    expect(getcwd(cwd, sizeof cwd) && strcmp(cwd, "/usr"), "we are in %s", cwd);
    over = 1;
    must(-pthread_join(id, NULL));
    ok();
}
