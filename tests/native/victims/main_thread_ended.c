/* The main thread has ended while another runs on: kept, or refused by name. */
#include "victim.h"

static void *thread(void *argument) {
    while (kin_of(getpid()).state != 'Z')
        nap(0.002);
    ready();
    go();
    ok();
    return argument;
}

int main(void) {
    pthread_t id;
    must(-pthread_create(&id, NULL, thread, NULL));
    pthread_exit(NULL);
}
