/* Each thread keeps the name it gave itself. */
#include "victim.h"

static atomic_int named, done;

static void *thread(void *argument) {
    char want[16], have[16] = "";
    snprintf(want, sizeof want, "thread (%ld) x", (long)argument);
    must(prctl(PR_SET_NAME, want));
    named++;
    go();
    must(prctl(PR_GET_NAME, have));
    expect(!strcmp(want, have), "%s is called %s", want, have);
    done++;
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        must(-pthread_create(&threads[i], NULL, thread, (void *)i));
    must(prctl(PR_SET_NAME, "a b) S 1 (c\n"));
    while (named < 4)
        nap(0.002);
    ready();
    go();
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    char have[16] = "";
    must(prctl(PR_GET_NAME, have));
    expect(!strcmp(have, "a b) S 1 (c\n") && done == 4, "the main thread is called %s", have);
    ok();
}
